#include "worker/context_parallel/zigzag.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera {
namespace {

TEST(Zigzag, Positions) {
  EXPECT_EQ(ZigzagPositions(8, 2, 0), (std::vector<int32_t>{0, 1, 6, 7}));
  EXPECT_EQ(ZigzagPositions(8, 2, 1), (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(ZigzagPositions(3, 1, 0), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Zigzag, RanksHoldEveryTokenOnce) {
  for (const int cp_size : {1, 2, 3, 4, 8}) {
    std::vector<int32_t> all;
    for (int rank = 0; rank < cp_size; ++rank) {
      const std::vector<int32_t> mine = ZigzagPositions(6 * cp_size, cp_size, rank);
      ASSERT_EQ(mine.size(), 6u);
      EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
      all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    for (int32_t i = 0; i < 6 * cp_size; ++i) ASSERT_EQ(all[i], i);
  }
}

// Query by query against the causal mask, and equal work for every rank.
TEST(Zigzag, ViewsAreTheCausalMask) {
  for (const int cp_size : {2, 3, 4}) {
    const int64_t time = 6 * cp_size, rows = 6, piece = 3;
    for (int mine = 0; mine < cp_size; ++mine) {
      int64_t pairs = 0;
      for (int theirs = 0; theirs < cp_size; ++theirs) {
        const std::vector<int32_t> queries = ZigzagPositions(time, cp_size, mine);
        const std::vector<int32_t> keys = ZigzagPositions(time, cp_size, theirs);
        const ZigzagView view = ZigzagSees(mine, theirs);
        for (int64_t q = 0; q < rows; ++q) {
          for (int64_t k = 0; k < rows; ++k) {
            const bool sees = q / piece >= view.first_half && k / piece < view.num_halves &&
                              (!view.causal || k <= q);
            EXPECT_EQ(sees, keys[k] <= queries[q]) << cp_size << " " << mine << " " << theirs;
            pairs += sees;
          }
        }
      }
      EXPECT_EQ(pairs, time * (time + 1) / 2 / cp_size);
    }
  }
}

}  // namespace
}  // namespace tessera
