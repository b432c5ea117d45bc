#include "kernels/layernorm.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, Stream& stream) {
  const int64_t m = input.shape().num_rows(), c = input.shape().last_dim();
  const DType dtype = input.dtype();
  ArgumentChecks checks("layernorm_forward", stream);
  checks.Floating("input", input)
      .Dense("input", input, dtype, {m, c})
      .Dense("weight", weight, dtype, {c})
      .Dense("bias", bias, dtype, {c})
      .Dense("output", output, dtype, {m, c})
      .Dense("mean", mean, DType::kFloat32, {m})
      .Dense("rstd", rstd, DType::kFloat32, {m});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kNorm);
    return cpu::LayerNormForward(input, weight, bias, epsilon, output, mean, rstd,
                                 cpu::NumThreads(stream));
  }
  return NoBackend("layernorm_forward", stream);
}

absl::Status LayerNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                               const Tensor& d_input, const Tensor& d_weight, const Tensor& d_bias,
                               Stream& stream) {
  const int64_t m = input.shape().num_rows(), c = input.shape().last_dim();
  const DType dtype = input.dtype();
  ArgumentChecks checks("layernorm_backward", stream);
  checks.Floating("input", input)
      .Dense("d_output", d_output, dtype, {m, c})
      .Dense("input", input, dtype, {m, c})
      .Dense("weight", weight, dtype, {c})
      .Dense("mean", mean, DType::kFloat32, {m})
      .Dense("rstd", rstd, DType::kFloat32, {m})
      .Dense("d_input", d_input, dtype, {m, c})
      .Accumulated("d_weight", d_weight, dtype, {c})
      .Dense("d_bias", d_bias, d_weight.dtype(), {c});
  if (!addend.is_null()) checks.Dense("addend", addend, dtype, {m, c});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kNorm);
    return cpu::LayerNormBackward(d_output, input, weight, mean, rstd, addend, d_input, d_weight,
                                  d_bias, cpu::NumThreads(stream));
  }
  return NoBackend("layernorm_backward", stream);
}

}  // namespace tessera
