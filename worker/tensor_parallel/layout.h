// How one rank of a tensor-parallel group holds its part of a model: plain values and pure
// functions (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3; sequence parallelism:
// Korthikanti et al., arXiv 2205.05198, section 4.2).
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_LAYOUT_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_LAYOUT_H_

#include <algorithm>
#include <cstdint>

#include "worker/tensor_parallel/parameter_slice.h"

namespace tessera {

struct TensorParallelLayout {
  int tp_size = 1;
  int tp_rank = 0;
  // Rows (tokens) of the norm regions are sharded over tp.
  bool sequence_parallel = false;

  bool shards_rows() const { return sequence_parallel && tp_size > 1; }
  // This rank's part of n equal things. REQUIRES: tp_size divides n.
  IndexRange PartOf(int64_t n) const { return {tp_rank * (n / tp_size), n / tp_size}; }
};

// kv heads of one rank: its share, or, where there are fewer than ranks, the one that several ranks
// hold. REQUIRES: one of the two numbers divides the other.
struct KvHeads {
  IndexRange heads;
  int replicas = 1;              // ranks that hold the same
  bool is_first_replica = true;  // the lowest of them
};
inline KvHeads KvHeadsOf(const TensorParallelLayout& layout, int64_t kv_heads) {
  if (kv_heads >= layout.tp_size) return {layout.PartOf(kv_heads), 1, true};
  const int replicas = layout.tp_size / static_cast<int>(kv_heads);
  return {{layout.tp_rank / replicas, 1}, replicas, layout.tp_rank % replicas == 0};
}

// Vocabulary rows of one rank: the vocabulary is padded to a multiple of tp_size; the last ranks
// may hold padding only.
struct VocabularyPart {
  IndexRange ids;
  int64_t padding = 0;
};
inline VocabularyPart VocabularyPartOf(const TensorParallelLayout& layout, int64_t vocab_size) {
  const int64_t rows = (vocab_size + layout.tp_size - 1) / layout.tp_size;
  const int64_t begin = std::min(layout.tp_rank * rows, vocab_size);
  const int64_t count = std::min(rows, vocab_size - begin);
  return {{begin, count}, rows - count};
}

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_LAYOUT_H_
