// Which tokens a rank of a cp group holds: of 2*cp equal pieces of a sequence, cp_rank i holds
// pieces i and 2*cp-1-i, in this order, so that under a causal mask all ranks do the same work
// (Zhu, zhuzilin/ring-flash-attention; Dubey et al., The Llama 3 Herd of Models, arXiv 2407.21783,
// section 3.3.2). Pure.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_ZIGZAG_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_ZIGZAG_H_

#include <cstdint>
#include <vector>

namespace tessera {

// A rank's rows of a sequence are two halves of T / (2*cp) rows each.
inline constexpr int kZigzagHalves = 2;

// The piece that is `half` (0 or 1) of the rows of cp_rank.
inline int ZigzagPiece(int cp_size, int cp_rank, int half) {
  return half == 0 ? cp_rank : 2 * cp_size - 1 - cp_rank;
}

// Position in its sequence of each of cp_rank's T/cp rows; for cutting batches, and for rotary and
// learned positions. With cp_size 1: 0, 1, .... REQUIRES: 2 * cp_size divides time, or cp_size
// is 1.
std::vector<int32_t> ZigzagPositions(int64_t time, int cp_size, int cp_rank);

// What a rank's queries see of another rank's keys: the queries from half first_half on see the
// first num_halves halves of the keys, all of them, or, where causal (the rank's own keys), as
// attention over consecutive tokens does.
struct ZigzagView {
  int first_half = 0;
  int num_halves = 0;
  bool causal = false;
};
ZigzagView ZigzagSees(int query_cp_rank, int key_cp_rank);

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_ZIGZAG_H_
