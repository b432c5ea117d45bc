// Who sees whom under a causal mask where ranks of a cp group hold a sequence in zigzag order
// (plan/sequence_split.h; Zhu, zhuzilin/ring-flash-attention). Pure.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_ZIGZAG_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_ZIGZAG_H_

namespace tessera {

// A rank's rows of a sequence are two halves of T / (2*cp) rows each.
inline constexpr int kZigzagHalves = 2;

// The piece that is `half` (0 or 1) of the rows of cp_rank.
inline int ZigzagPiece(int cp_size, int cp_rank, int half) {
  return half == 0 ? cp_rank : 2 * cp_size - 1 - cp_rank;
}

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
