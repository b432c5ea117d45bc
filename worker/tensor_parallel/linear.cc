#include "worker/tensor_parallel/linear.h"

#include "kernels/matmul.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

// gradients.weight +=, in the weight's layout.
absl::Status AddWeightGradient(const Tensor& input, const Tensor& d_output,
                               const LinearTensors& gradients, Stream& stream) {
  MatmulOptions options;
  options.transpose_a = true;
  options.accumulate = true;
  if (gradients.layout == WeightLayout::kOutIn) {
    return Matmul(d_output, input, gradients.weight, options, stream);
  }
  return Matmul(input, d_output, gradients.weight, options, stream);
}

}  // namespace

absl::Status Linear::Forward(const Tensor& input, const LinearTensors& parameters,
                             const Tensor& addend, const Tensor& output, Stream& stream) {
  MatmulOptions options;
  options.transpose_b = parameters.layout == WeightLayout::kOutIn;
  options.bias = parameters.bias;
  options.addend = addend;
  return Matmul(input, parameters.weight, output, options, stream);
}

absl::Status Linear::BackwardInput(const LinearTensors& parameters, const Tensor& d_output,
                                   InputGradient mode, const Tensor& d_input, Stream& stream) {
  MatmulOptions options;
  options.transpose_b = parameters.layout == WeightLayout::kInOut;
  options.accumulate = mode == InputGradient::kAdd;
  return Matmul(d_output, parameters.weight, d_input, options, stream);
}

absl::Status Linear::BackwardWeight(const Tensor& input, const Tensor& d_output,
                                    const LinearTensors& gradients, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(AddWeightGradient(input, d_output, gradients, stream));
  if (gradients.bias.is_null()) return absl::OkStatus();
  return AddRowSum(d_output, gradients.bias, stream);
}

}  // namespace tessera
