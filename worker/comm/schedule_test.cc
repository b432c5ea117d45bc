#include "worker/comm/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

TEST(Schedule, BlocksCoverEveryElementOnce) {
  for (int64_t n : {0, 1, 2, 7, 8, 9, 1000003}) {
    for (int g : {1, 2, 3, 5, 8}) {
      int64_t next = 0;
      for (int b = 0; b < g; ++b) {
        const ElementRange block = Block(n, g, b);
        EXPECT_EQ(block.begin, next) << n << " over " << g << " block " << b;
        EXPECT_GE(block.count, 0);
        next += block.count;
      }
      EXPECT_EQ(next, n);
    }
  }
}

struct Case {
  const char* name;
  CollectiveKind kind;
  int root, from, to;
  ElementRange outgoing, landing;
};

// 12 elements, 4 members.
TEST(Schedule, HandsOverAndLands) {
  const std::vector<Case> cases = {
      {"summands of the owner", CollectiveKind::kAllReduce, 0, 3, 1, {3, 3}, {}},
      {"as all_reduce", CollectiveKind::kReduceScatter, 0, 3, 1, {3, 3}, {}},
      {"whole input, by sender", CollectiveKind::kAllGather, 0, 3, 1, {0, 12}, {36, 12}},
      {"transposed", CollectiveKind::kAllToAll, 0, 3, 1, {3, 3}, {9, 3}},
      {"root", CollectiveKind::kBroadcast, 2, 2, 1, {0, 12}, {0, 12}},
      {"not the root", CollectiveKind::kBroadcast, 2, 3, 1, {}, {}},
      {"nothing to hand over", CollectiveKind::kBarrier, 0, 3, 1, {}, {}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Outgoing(c.kind, 12, 4, c.root, c.from, c.to), c.outgoing) << c.name;
    EXPECT_EQ(Landing(c.kind, 12, 4, c.root, c.from, c.to), c.landing) << c.name;
  }
}

}  // namespace
}  // namespace tessera
