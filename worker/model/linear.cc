#include "worker/model/linear.h"

#include "kernels/matmul.h"
#include "kernels/status_macros.h"

namespace tessera {

absl::Status Linear::Forward(const Tensor& input, const LinearTensors& parameters,
                             const Tensor& addend, const Tensor& output, Stream& stream) {
  MatmulOptions options;
  options.bias = parameters.bias;
  options.addend = addend;
  return Matmul(input, parameters.weight, output, options, stream);
}

absl::Status Linear::Backward(const Tensor& input, const LinearTensors& parameters,
                              const Tensor& d_output, const Tensor& d_input,
                              const LinearTensors& gradients, Stream& stream) {
  MatmulOptions input_gradient;
  input_gradient.transpose_b = true;
  TESSERA_RETURN_IF_ERROR(Matmul(d_output, parameters.weight, d_input, input_gradient, stream));
  MatmulOptions weight_gradient;
  weight_gradient.transpose_a = true;
  weight_gradient.accumulate = true;
  TESSERA_RETURN_IF_ERROR(Matmul(input, d_output, gradients.weight, weight_gradient, stream));
  return AddRowSum(d_output, gradients.bias, stream);
}

}  // namespace tessera
