#include "kernels/layernorm.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tessera {

absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, Stream& stream) {
  const int64_t m = input.shape().num_rows(), c = input.shape().last_dim();
  ArgumentChecks checks("layernorm_forward", stream);
  checks.Dense("input", input, DType::kFloat32, {m, c})
      .Dense("weight", weight, DType::kFloat32, {c})
      .Dense("bias", bias, DType::kFloat32, {c})
      .Dense("output", output, DType::kFloat32, {m, c})
      .Dense("mean", mean, DType::kFloat32, {m})
      .Dense("rstd", rstd, DType::kFloat32, {m});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
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
  ArgumentChecks checks("layernorm_backward", stream);
  checks.Dense("d_output", d_output, DType::kFloat32, {m, c})
      .Dense("input", input, DType::kFloat32, {m, c})
      .Dense("weight", weight, DType::kFloat32, {c})
      .Dense("mean", mean, DType::kFloat32, {m})
      .Dense("rstd", rstd, DType::kFloat32, {m})
      .Dense("d_input", d_input, DType::kFloat32, {m, c})
      .Dense("d_weight", d_weight, DType::kFloat32, {c})
      .Dense("d_bias", d_bias, DType::kFloat32, {c});
  if (!addend.is_null()) checks.Dense("addend", addend, DType::kFloat32, {m, c});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    return cpu::LayerNormBackward(d_output, input, weight, mean, rstd, addend, d_input, d_weight,
                                  d_bias, cpu::NumThreads(stream));
  }
  return NoBackend("layernorm_backward", stream);
}

}  // namespace tessera
