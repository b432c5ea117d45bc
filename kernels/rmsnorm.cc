#include "kernels/rmsnorm.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status RmsNormForward(const Tensor& input, const Tensor& weight, float epsilon,
                            const Tensor& output, const Tensor& rstd, Stream& stream) {
  const int64_t m = input.shape().num_rows(), c = input.shape().last_dim();
  const DType dtype = input.dtype();
  ArgumentChecks checks("rmsnorm_forward", stream);
  checks.Floating("input", input)
      .Dense("input", input, dtype, {m, c})
      .Dense("weight", weight, dtype, {c})
      .Dense("output", output, dtype, {m, c})
      .Dense("rstd", rstd, DType::kFloat32, {m});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kNorm);
    return cpu::RmsNormForward(input, weight, epsilon, output, rstd, cpu::NumThreads(stream));
  }
  return NoBackend("rmsnorm_forward", stream);
}

absl::Status RmsNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                             const Tensor& rstd, const Tensor& addend, const Tensor& d_input,
                             const Tensor& d_weight, Stream& stream) {
  const int64_t m = input.shape().num_rows(), c = input.shape().last_dim();
  const DType dtype = input.dtype();
  ArgumentChecks checks("rmsnorm_backward", stream);
  checks.Floating("input", input)
      .Dense("d_output", d_output, dtype, {m, c})
      .Dense("input", input, dtype, {m, c})
      .Dense("weight", weight, dtype, {c})
      .Dense("rstd", rstd, DType::kFloat32, {m})
      .Dense("d_input", d_input, dtype, {m, c})
      .Accumulated("d_weight", d_weight, dtype, {c});
  if (!addend.is_null()) checks.Dense("addend", addend, dtype, {m, c});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kNorm);
    return cpu::RmsNormBackward(d_output, input, weight, rstd, addend, d_input, d_weight,
                                cpu::NumThreads(stream));
  }
  return NoBackend("rmsnorm_backward", stream);
}

}  // namespace tessera
