#include "worker/model/embedding.h"

#include "kernels/embedding.h"
#include "worker/model/units.h"

namespace tessera {

absl::Status Embedding::Forward(const Tensor& ids, absl::Span<const Tensor> parameters,
                                const Tensor& output, Stream& stream) {
  return EmbeddingForward(ids, parameters[kTokenEmbedding], parameters[kPositionEmbedding], output,
                          stream);
}

absl::Status Embedding::Backward(const Tensor& ids, const Tensor& d_output,
                                 absl::Span<const Tensor> gradients, Stream& stream) {
  return EmbeddingBackward(ids, d_output, gradients[kTokenEmbedding], gradients[kPositionEmbedding],
                           stream);
}

}  // namespace tessera
