#include "coordinator/placement.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

using Workers = std::vector<std::string>;

TEST(Placement, IsAFunctionOfTheIdleWorkers) {
  const plan::MeshSize mesh{.dp = 3, .cp = 1, .pp = 1, .tp = 1};
  EXPECT_EQ(*PlaceRanks(mesh, {{"w2", "h"}, {"w0", "h"}, {"w1", "h"}}),
            (Workers{"w0", "w1", "w2"}));
  EXPECT_EQ(*PlaceRanks(mesh, {{"w1", "h"}, {"w2", "h"}, {"w0", "h"}}),
            (Workers{"w0", "w1", "w2"}));
}

TEST(Placement, FullestHostFirst) {
  const plan::MeshSize mesh{.dp = 2, .cp = 1, .pp = 1, .tp = 1};
  EXPECT_EQ(*PlaceRanks(mesh, {{"a0", "a"}, {"b0", "b"}, {"b1", "b"}}), (Workers{"b0", "b1"}));
}

TEST(Placement, KeepsTpGroupsInsideAHostWhereTheyFit) {
  const plan::MeshSize mesh{.dp = 3, .cp = 1, .pp = 1, .tp = 2};
  std::vector<Candidate> idle;
  for (const char* worker : {"a0", "a1", "a2"}) idle.push_back({worker, "a"});
  for (const char* worker : {"b0", "b1", "b2"}) idle.push_back({worker, "b"});
  const Workers placed = *PlaceRanks(mesh, idle);
  EXPECT_EQ(placed, (Workers{"a0", "a1", "b0", "b1", "a2", "b2"}));  // the last must be split
}

TEST(Placement, SaysHowManyAreMissing) {
  const absl::Status status =
      PlaceRanks({.dp = 2, .cp = 1, .pp = 1, .tp = 1}, {{"a", "h"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "needs 2 idle workers, 1 are idle");
}

}  // namespace
}  // namespace tessera
