// Token embedding, split by vocabulary over tp, with learned positions (GPT-2) or without (Llama):
// the first unit.
//
// Legend: B sequences of T tokens, M = B*T, R = M or, with sequence parallelism, M / tp_size; C
// channels, V rows of this rank; ids int32.
#ifndef TESSERA_WORKER_MODEL_EMBEDDING_H_
#define TESSERA_WORKER_MODEL_EMBEDDING_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/parallel_scratch.h"
#include "worker/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Weights or their gradients.
struct EmbeddingTensors {
  Tensor tokens;     // (V, C)
  Tensor positions;  // (P, C); null where rotary

  // unit: the embedding unit of either family, whose tokens come first.
  static EmbeddingTensors FromUnit(absl::Span<const Tensor> unit);
};

// Used by one thread; tp outlives it.
class Embedding {
 public:
  Embedding(int64_t vocab_size, const TensorParallel& tp) : vocab_size_(vocab_size), tp_(tp) {}

  // output (R, C) = from ids (B, T): this rank's tokens, summed over tp, plus positions. positions
  // (R) int32: of the rows of output; null: first_position + t of all M.
  absl::Status Forward(const Tensor& ids, int64_t first_position, const Tensor& positions,
                       const EmbeddingTensors& parameters, const ParallelScratch& scratch,
                       const Tensor& output, Stream& stream) const;
  // gradients += from d_output (R, C); positions null: t.
  absl::Status Backward(const Tensor& ids, const Tensor& positions, const Tensor& d_output,
                        const ParallelScratch& scratch, const EmbeddingTensors& gradients,
                        Stream& stream) const;

 private:
  const int64_t vocab_size_;
  const TensorParallel& tp_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_EMBEDDING_H_
