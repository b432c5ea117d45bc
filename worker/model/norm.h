// LayerNorm (GPT-2) or RMSNorm (Llama) with its saved statistics.
//
// Legend: M rows (tokens), C channels. Statistics are fp32, everything else has the activations'
// element type.
#ifndef TESSERA_WORKER_MODEL_NORM_H_
#define TESSERA_WORKER_MODEL_NORM_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/model_config.h"

namespace tessera {

// Weights or their gradients.
struct NormTensors {
  Tensor weight;  // (C)
  Tensor bias;    // (C); null for RMSNorm
};

// Views into the activations of one micro-batch.
struct NormActivations {
  Tensor output;  // (M, C)
  Tensor mean;    // (M); null for RMSNorm
  Tensor rstd;    // (M)

  static NormActivations Create(const ModelConfig& config, int64_t rows,
                                ActivationBuffers& buffers);
};

// Used by one thread.
class Norm {
 public:
  explicit Norm(const ModelConfig& config)
      : is_rms_(config.family == ModelFamily::kLlama), epsilon_(config.norm_epsilon) {}

  // activations.* = from input (M, C)
  absl::Status Forward(const Tensor& input, const NormTensors& parameters,
                       const NormActivations& activations, Stream& stream) const;
  // d_input (M, C) = [addend +] the gradient; gradients.* +=; d_output (M, C). As
  // LayerNormBackward.
  absl::Status Backward(const Tensor& input, const NormTensors& parameters,
                        const NormActivations& activations, const Tensor& d_output,
                        const Tensor& addend, const Tensor& d_input, const NormTensors& gradients,
                        Stream& stream) const;

 private:
  const bool is_rms_;
  const float epsilon_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NORM_H_
