#include "worker/context_parallel/zigzag.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "plan/sequence_split.h"

namespace tessera {
namespace {

// Query by query against the causal mask, and equal work for every rank.
TEST(Zigzag, ViewsAreTheCausalMask) {
  for (const int cp_size : {2, 3, 4}) {
    const int time = 6 * cp_size, rows = 6, piece = 3;
    for (int mine = 0; mine < cp_size; ++mine) {
      int64_t pairs = 0;
      for (int theirs = 0; theirs < cp_size; ++theirs) {
        const std::vector<int32_t> queries = plan::PositionsOf(cp_size, mine, time);
        const std::vector<int32_t> keys = plan::PositionsOf(cp_size, theirs, time);
        const ZigzagView view = ZigzagSees(mine, theirs);
        for (int q = 0; q < rows; ++q) {
          for (int k = 0; k < rows; ++k) {
            const bool sees = q / piece >= view.first_half && k / piece < view.num_halves &&
                              (!view.causal || k <= q);
            EXPECT_EQ(sees, keys[k] <= queries[q]) << cp_size << " " << mine << " " << theirs;
            pairs += sees;
          }
        }
      }
      EXPECT_EQ(pairs, int64_t{time} * (time + 1) / 2 / cp_size);
    }
  }
}

}  // namespace
}  // namespace tessera
