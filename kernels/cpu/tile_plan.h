// How a matrix product is cut into tiles, one oneDNN call each.
#ifndef TESSERA_KERNELS_CPU_TILE_PLAN_H_
#define TESSERA_KERNELS_CPU_TILE_PLAN_H_

#include <algorithm>
#include <cstdint>

namespace tessera::cpu {

// A function of the output's shape alone: sums, whose order may depend on a tile's size, must not
// depend on the number of threads.
struct TilePlan {
  int64_t m, n;
  int64_t tile_rows, tile_columns;
  int64_t row_tiles, column_tiles;

  int64_t num_tiles() const { return row_tiles * column_tiles; }
};

struct Tile {
  int64_t row, column, rows, columns;
};

// Size of each of `parts` parts but the last, rounded up to a multiple of `unit`.
inline int64_t PartSize(int64_t total, int64_t parts, int64_t unit) {
  return std::max(unit, ((total + parts - 1) / parts + unit - 1) / unit * unit);
}

// oneDNN packs its operands where 1/m + 1/n is below 0.0038, and is up to twice as fast there on
// transposed ones; a margin for rounding sizes up.
inline bool IsPacked(int64_t rows, int64_t columns) {
  return 1.0 / static_cast<double>(rows) + 1.0 / static_cast<double>(columns) < 0.0037;
}

// Tiles of up to 512 x 1536, so that packing is amortised; an even number of rows of them, so that
// two threads end together; up to eight tiles as long as they are packed and 768 columns wide. Two
// packed tiles are better than four that are not, for two threads by 7 to 16 % at 1024 x 768; only
// an output that has no two packed tiles is cut into four, if it is that large.
inline TilePlan PlanTiles(int64_t m, int64_t n) {
  constexpr int64_t kRows = 512, kSmallRows = 256, kColumns = 1536, kLeastColumns = 768;
  const auto parts = [](int64_t total, int64_t largest) {
    return std::max<int64_t>(1, (total + largest - 1) / largest);
  };
  const auto even_parts = [&](int64_t largest) {
    const int64_t count = parts(m, largest);
    return count == 1 ? 1 : count + count % 2;
  };
  TilePlan plan{m, n, 0, 0, even_parts(kRows), parts(n, kColumns)};
  while (plan.num_tiles() < 8 && n / (plan.column_tiles + 1) >= kLeastColumns &&
         IsPacked(m / plan.row_tiles, n / (plan.column_tiles + 1))) {
    ++plan.column_tiles;
  }
  const bool two_are_packed =
      plan.num_tiles() >= 2 && IsPacked(m / plan.row_tiles, n / plan.column_tiles);
  if (plan.num_tiles() < 4 && !two_are_packed) plan.row_tiles = even_parts(kSmallRows);
  plan.tile_rows = PartSize(m, plan.row_tiles, 16);
  plan.tile_columns = PartSize(n, plan.column_tiles, 48);
  // Rounding up may leave the last parts empty, as an empty output leaves all.
  plan.row_tiles = (m + plan.tile_rows - 1) / plan.tile_rows;
  plan.column_tiles = (n + plan.tile_columns - 1) / plan.tile_columns;
  return plan;
}

// Tiles of one column of tiles follow each other, so that they share b's panel.
inline Tile TileAt(const TilePlan& plan, int64_t index) {
  const int64_t row = index % plan.row_tiles * plan.tile_rows;
  const int64_t column = index / plan.row_tiles * plan.tile_columns;
  return {row, column, std::min(plan.tile_rows, plan.m - row),
          std::min(plan.tile_columns, plan.n - column)};
}

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_TILE_PLAN_H_
