#include "worker/model/mlp.h"

#include "kernels/gelu.h"
#include "kernels/status_macros.h"

namespace tessera {

MlpActivations MlpActivations::Create(int64_t rows, int64_t intermediate,
                                      ActivationBuffers& buffers) {
  return {buffers.New(DType::kFloat32, {rows, intermediate}, "mlp up"),
          buffers.New(DType::kFloat32, {rows, intermediate}, "mlp gelu")};
}

absl::Status Mlp::Forward(const Tensor& input, const MlpTensors& parameters, const Tensor& residual,
                          const MlpActivations& activations, const Tensor& output, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, parameters.up, Tensor(), activations.up, stream));
  TESSERA_RETURN_IF_ERROR(GeluForward(activations.up, activations.gelu, stream));
  return Linear::Forward(activations.gelu, parameters.projection, residual, output, stream);
}

absl::Status Mlp::Backward(const Tensor& input, const MlpTensors& parameters,
                           const MlpActivations& activations, const Tensor& d_output,
                           const Tensor& d_up, const Tensor& d_input, const MlpTensors& gradients,
                           Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Linear::Backward(activations.gelu, parameters.projection, d_output, d_up,
                                           gradients.projection, stream));
  TESSERA_RETURN_IF_ERROR(GeluBackward(activations.up, d_up, d_up, stream));
  return Linear::Backward(input, parameters.up, d_up, d_input, gradients.up, stream);
}

}  // namespace tessera
