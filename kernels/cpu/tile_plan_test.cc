#include "kernels/cpu/tile_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::cpu {
namespace {

struct Sizes {
  int64_t m, n;
};

TEST(TilePlan, CoversEveryElementOnce) {
  for (const Sizes& s : {Sizes{0, 5},
                         {5, 0},
                         {1, 1},
                         {1, 5000},
                         {259, 1},
                         {513, 1537},
                         {700, 1100},
                         {1100, 1600},
                         {3000, 90}}) {
    const TilePlan plan = PlanTiles(s.m, s.n);
    std::vector<int> covered(s.m * s.n);
    for (int64_t i = 0; i < plan.num_tiles(); ++i) {
      const Tile tile = TileAt(plan, i);
      ASSERT_GT(tile.rows, 0);
      ASSERT_GT(tile.columns, 0);
      for (int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
        for (int64_t column = tile.column; column < tile.column + tile.columns; ++column) {
          ++covered[row * s.n + column];
        }
      }
    }
    EXPECT_EQ(covered, std::vector<int>(s.m * s.n, 1)) << s.m << " x " << s.n;
  }
}

// Outputs of GPT-2 124M at 1024 rows, and their weights' gradients: two threads have equal work.
TEST(TilePlan, TwoThreadsHaveEqualWork) {
  for (const Sizes& s : {Sizes{1024, 768},
                         {1024, 2304},
                         {1024, 3072},
                         {1024, 50257},
                         {768, 768},
                         {768, 2304},
                         {768, 3072},
                         {3072, 768},
                         {2048, 3072}}) {
    const TilePlan plan = PlanTiles(s.m, s.n);
    EXPECT_GE(plan.num_tiles(), 2);
    EXPECT_EQ(plan.num_tiles() % 2, 0) << s.m << " x " << s.n;
  }
}

}  // namespace
}  // namespace tessera::cpu
