#include "worker/context_parallel/zigzag.h"

namespace tessera {

ZigzagView ZigzagSees(int query_cp_rank, int key_cp_rank) {
  if (query_cp_rank == key_cp_rank) return {0, kZigzagHalves, true};
  // An earlier rank's first piece is before both of ours and its second after both.
  if (key_cp_rank < query_cp_rank) return {0, 1, false};
  // A later rank's pieces lie between ours.
  return {1, kZigzagHalves, false};
}

}  // namespace tessera
