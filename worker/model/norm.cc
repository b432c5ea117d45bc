#include "worker/model/norm.h"

#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace tessera {

NormActivations NormActivations::Create(const ModelConfig& config, int64_t rows,
                                        ActivationBuffers& buffers) {
  NormActivations activations;
  activations.output = buffers.New({rows, config.hidden_size}, "norm output");
  if (config.family == ModelFamily::kGpt2) {
    activations.mean = buffers.New(DType::kFloat32, {rows}, "norm mean");
  }
  activations.rstd = buffers.New(DType::kFloat32, {rows}, "norm rstd");
  return activations;
}

absl::Status Norm::Forward(const Tensor& input, const NormTensors& parameters,
                           const NormActivations& activations, Stream& stream) const {
  if (is_rms_) {
    return RmsNormForward(input, parameters.weight, epsilon_, activations.output, activations.rstd,
                          stream);
  }
  return LayerNormForward(input, parameters.weight, parameters.bias, epsilon_, activations.output,
                          activations.mean, activations.rstd, stream);
}

absl::Status Norm::Backward(const Tensor& input, const NormTensors& parameters,
                            const NormActivations& activations, const Tensor& d_output,
                            const Tensor& addend, const Tensor& d_input,
                            const NormTensors& gradients, Stream& stream) const {
  if (is_rms_) {
    return RmsNormBackward(d_output, input, parameters.weight, activations.rstd, addend, d_input,
                           gradients.weight, stream);
  }
  return LayerNormBackward(d_output, input, parameters.weight, activations.mean, activations.rstd,
                           addend, d_input, gradients.weight, gradients.bias, stream);
}

}  // namespace tessera
