// LayerNorm with its saved statistics.
//
// Legend: M rows (tokens), C channels. fp32.
#ifndef TESSERA_WORKER_MODEL_LAYER_NORM_H_
#define TESSERA_WORKER_MODEL_LAYER_NORM_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"

namespace tessera {

// Weights or their gradients.
struct LayerNormTensors {
  Tensor weight;  // (C)
  Tensor bias;    // (C)
};

// Views into the activations of one micro-batch.
struct LayerNormActivations {
  Tensor output;  // (M, C)
  Tensor mean;    // (M)
  Tensor rstd;    // (M)

  static LayerNormActivations Create(int64_t rows, int64_t channels, ActivationBuffers& buffers);
};

// Used by one thread.
class LayerNorm {
 public:
  explicit LayerNorm(float epsilon) : epsilon_(epsilon) {}

  // activations.* = from input (M, C)
  absl::Status Forward(const Tensor& input, const LayerNormTensors& parameters,
                       const LayerNormActivations& activations, Stream& stream) const;
  // d_input (M, C) = [addend +] the gradient; gradients.* += ; d_output (M, C). As
  // LayerNormBackward.
  absl::Status Backward(const Tensor& input, const LayerNormTensors& parameters,
                        const LayerNormActivations& activations, const Tensor& d_output,
                        const Tensor& addend, const Tensor& d_input,
                        const LayerNormTensors& gradients, Stream& stream) const;

 private:
  const float epsilon_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_LAYER_NORM_H_
