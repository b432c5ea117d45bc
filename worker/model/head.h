// The last unit: final norm, product with the token embedding (tied) or a matrix of its own,
// cross-entropy.
//
// Legend: M rows (tokens), C channels, V token ids; targets int32.
#ifndef TESSERA_WORKER_MODEL_HEAD_H_
#define TESSERA_WORKER_MODEL_HEAD_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/model_config.h"
#include "worker/model/norm.h"

namespace tessera {

// Weights or their gradients.
struct HeadTensors {
  NormTensors norm;
  Tensor tokens;  // (V, C), of the embedding unit where tied
};

// Views into the activations of one micro-batch.
struct HeadActivations {
  NormActivations norm;
  Tensor logits;  // (M, V); their gradients after Loss with backward
  Tensor losses;  // (M) fp32

  static HeadActivations Create(const ModelConfig& config, int64_t rows,
                                ActivationBuffers& buffers);
};

// Used by one thread.
class Head {
 public:
  explicit Head(const ModelConfig& config) : norm_(config) {}

  // activations.norm, logits = from input (M, C)
  absl::Status Forward(const Tensor& input, const HeadTensors& parameters,
                       const HeadActivations& activations, Stream& stream) const;
  // activations.losses = per row, 0 where targets (M) is -1. With backward, logits become their
  // gradients, times gradient_scale.
  static absl::Status Loss(const Tensor& targets, float gradient_scale, bool backward,
                           const HeadActivations& activations, Stream& stream);
  // d_input (M, C) =; gradients.* +=; d_norm (M, C) is scratch. After Loss with backward.
  absl::Status Backward(const Tensor& input, const HeadTensors& parameters,
                        const HeadActivations& activations, const Tensor& d_norm,
                        const Tensor& d_input, const HeadTensors& gradients, Stream& stream) const;

 private:
  const Norm norm_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_HEAD_H_
