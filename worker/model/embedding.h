// Token embedding, with learned positions (GPT-2) or without (Llama): the first unit.
//
// Legend: B sequences of T tokens, M = B*T, C channels; ids int32.
#ifndef TESSERA_WORKER_MODEL_EMBEDDING_H_
#define TESSERA_WORKER_MODEL_EMBEDDING_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Weights or their gradients.
struct EmbeddingTensors {
  Tensor tokens;     // (V, C)
  Tensor positions;  // (P, C); null where rotary

  // unit: the embedding unit of either family, whose tokens come first.
  static EmbeddingTensors FromUnit(absl::Span<const Tensor> unit);
};

// Stateless; used by one thread.
class Embedding {
 public:
  // output (M, C) = from ids (B, T), whose first token is at first_position of its sequence
  static absl::Status Forward(const Tensor& ids, int64_t first_position,
                              const EmbeddingTensors& parameters, const Tensor& output,
                              Stream& stream);
  // gradients += from d_output (M, C); positions from 0
  static absl::Status Backward(const Tensor& ids, const Tensor& d_output,
                               const EmbeddingTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_EMBEDDING_H_
