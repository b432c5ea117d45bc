// The last unit: final LayerNorm, product with the token embedding (tied), cross-entropy.
//
// Legend: M rows (tokens), C channels, V token ids. fp32; targets int32.
#ifndef TESSERA_WORKER_MODEL_HEAD_H_
#define TESSERA_WORKER_MODEL_HEAD_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/layer_norm.h"
#include "worker/model/model_config.h"

namespace tessera {

// Weights or their gradients.
struct HeadTensors {
  LayerNormTensors norm;
  Tensor tokens;  // (V, C), of the embedding unit
};

// Views into the activations of one micro-batch.
struct HeadActivations {
  LayerNormActivations norm;
  Tensor logits;  // (M, V); their gradients after Loss with backward
  Tensor losses;  // (M)

  static HeadActivations Create(const ModelConfig& config, int64_t rows,
                                ActivationBuffers& buffers);
};

// Used by one thread.
class Head {
 public:
  explicit Head(const ModelConfig& config) : norm_(config.norm_epsilon) {}

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
  const LayerNorm norm_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_HEAD_H_
