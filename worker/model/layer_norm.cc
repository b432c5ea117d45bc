#include "worker/model/layer_norm.h"

#include "kernels/layernorm.h"

namespace tessera {

LayerNormActivations LayerNormActivations::Create(int64_t rows, int64_t channels,
                                                  ActivationBuffers& buffers) {
  return {buffers.New(DType::kFloat32, {rows, channels}, "layer norm output"),
          buffers.New(DType::kFloat32, {rows}, "layer norm mean"),
          buffers.New(DType::kFloat32, {rows}, "layer norm rstd")};
}

absl::Status LayerNorm::Forward(const Tensor& input, const LayerNormTensors& parameters,
                                const LayerNormActivations& activations, Stream& stream) const {
  return LayerNormForward(input, parameters.weight, parameters.bias, epsilon_, activations.output,
                          activations.mean, activations.rstd, stream);
}

absl::Status LayerNorm::Backward(const Tensor& input, const LayerNormTensors& parameters,
                                 const LayerNormActivations& activations, const Tensor& d_output,
                                 const Tensor& addend, const Tensor& d_input,
                                 const LayerNormTensors& gradients, Stream& stream) const {
  return LayerNormBackward(d_output, input, parameters.weight, activations.mean, activations.rstd,
                           addend, d_input, gradients.weight, gradients.bias, stream);
}

}  // namespace tessera
