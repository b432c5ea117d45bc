// Token plus position embedding, the first unit.
//
// Legend: B sequences of T tokens, M = B*T, C channels. fp32; ids int32.
#ifndef TESSERA_WORKER_MODEL_EMBEDDING_H_
#define TESSERA_WORKER_MODEL_EMBEDDING_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Stateless; used by one thread. Unit tensors are in the order of Gpt2EmbeddingParameter.
class Embedding {
 public:
  // output (M, C) = from ids (B, T)
  static absl::Status Forward(const Tensor& ids, absl::Span<const Tensor> parameters,
                              const Tensor& output, Stream& stream);
  // gradients += from d_output (M, C)
  static absl::Status Backward(const Tensor& ids, const Tensor& d_output,
                               absl::Span<const Tensor> gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_EMBEDDING_H_
