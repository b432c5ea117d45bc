// The two-layer MLP of a decoder layer: gelu(x W1 + b1) W2 + b2.
//
// Legend: M rows (tokens), C channels, F intermediate channels. fp32.
#ifndef TESSERA_WORKER_MODEL_MLP_H_
#define TESSERA_WORKER_MODEL_MLP_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/linear.h"

namespace tessera {

// Weights or their gradients.
struct MlpTensors {
  LinearTensors up;          // (C, F)
  LinearTensors projection;  // (F, C)
};

// Views into the activations of one micro-batch.
struct MlpActivations {
  Tensor up;    // (M, F), before the GELU
  Tensor gelu;  // (M, F)

  static MlpActivations Create(int64_t rows, int64_t intermediate, ActivationBuffers& buffers);
};

// Stateless; used by one thread.
class Mlp {
 public:
  // output (M, C) = residual (M, C) + mlp(input (M, C)); activations.* =.
  static absl::Status Forward(const Tensor& input, const MlpTensors& parameters,
                              const Tensor& residual, const MlpActivations& activations,
                              const Tensor& output, Stream& stream);
  // d_input (M, C) = the MLP branch's gradient from d_output (M, C); gradients.* +=;
  // d_up (M, F) is scratch.
  static absl::Status Backward(const Tensor& input, const MlpTensors& parameters,
                               const MlpActivations& activations, const Tensor& d_output,
                               const Tensor& d_up, const Tensor& d_input,
                               const MlpTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MLP_H_
