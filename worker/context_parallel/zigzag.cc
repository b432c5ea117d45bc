#include "worker/context_parallel/zigzag.h"

namespace tessera {

std::vector<int32_t> ZigzagPositions(int64_t time, int cp_size, int cp_rank) {
  std::vector<int32_t> positions;
  positions.reserve(time / cp_size);
  const int64_t piece_rows = time / (kZigzagHalves * cp_size);
  for (int half = 0; half < kZigzagHalves && cp_size > 1; ++half) {
    const int64_t first = ZigzagPiece(cp_size, cp_rank, half) * piece_rows;
    for (int64_t i = 0; i < piece_rows; ++i) positions.push_back(static_cast<int32_t>(first + i));
  }
  for (int64_t i = 0; i < time && cp_size == 1; ++i) positions.push_back(static_cast<int32_t>(i));
  return positions;
}

ZigzagView ZigzagSees(int query_cp_rank, int key_cp_rank) {
  if (query_cp_rank == key_cp_rank) return {0, kZigzagHalves, true};
  // An earlier rank's first piece is before both of ours and its second after both.
  if (key_cp_rank < query_cp_rank) return {0, 1, false};
  // A later rank's pieces lie between ours.
  return {1, kZigzagHalves, false};
}

}  // namespace tessera
