// The MLP of a decoder layer: GPT-2's gelu(x W1 + b1) W2 + b2, or Llama's
// (silu(x Wg) * (x Wu)) Wd.
//
// Legend: M rows (tokens), C channels, F intermediate channels.
#ifndef TESSERA_WORKER_MODEL_MLP_H_
#define TESSERA_WORKER_MODEL_MLP_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/linear.h"
#include "worker/model/model_config.h"

namespace tessera {

// Weights or their gradients.
struct MlpTensors {
  LinearTensors gate;        // C to F; Llama only, null else
  LinearTensors up;          // C to F
  LinearTensors projection;  // F to C

  bool is_gated() const { return !gate.weight.is_null(); }
};

// Views into the activations of one micro-batch.
struct MlpActivations {
  Tensor gate;    // (M, F); null where not gated
  Tensor up;      // (M, F)
  Tensor hidden;  // (M, F), after the activation

  static MlpActivations Create(const ModelConfig& config, int64_t rows, ActivationBuffers& buffers);
};

// Scratch shared by all layers; its contents do not outlive a call.
struct MlpScratch {
  Tensor d_hidden;  // (M, F); null where backward is not called
  Tensor d_gate;    // (M, F); null where backward is not called or not gated

  static MlpScratch Create(const ModelConfig& config, int64_t rows, bool backward,
                           ActivationBuffers& buffers);
};

// Stateless; used by one thread.
class Mlp {
 public:
  // output (M, C) = residual (M, C) + mlp(input (M, C)); activations.* =.
  static absl::Status Forward(const Tensor& input, const MlpTensors& parameters,
                              const Tensor& residual, const MlpActivations& activations,
                              const Tensor& output, Stream& stream);
  // activations.* = from input (M, C): what Backward needs.
  static absl::Status ForwardHidden(const Tensor& input, const MlpTensors& parameters,
                                    const MlpActivations& activations, Stream& stream);
  // d_input (M, C) = the MLP branch's gradient from d_output (M, C); gradients.* +=.
  static absl::Status Backward(const Tensor& input, const MlpTensors& parameters,
                               const MlpActivations& activations, const Tensor& d_output,
                               const MlpScratch& scratch, const Tensor& d_input,
                               const MlpTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MLP_H_
