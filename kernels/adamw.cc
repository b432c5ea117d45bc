#include "kernels/adamw.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status AdamW(const Tensor& parameter, const Tensor& gradient, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const AdamWOptions& options, Stream& stream) {
  const Shape shape{parameter.num_elements()};
  ArgumentChecks checks("adamw", stream);
  checks.Dense("parameter", parameter, DType::kFloat32, shape)
      .Floating("gradient", gradient)
      .Dense("gradient", gradient, gradient.dtype(), shape)
      .Dense("exp_avg", exp_avg, DType::kFloat32, shape)
      .Dense("exp_avg_sq", exp_avg_sq, DType::kFloat32, shape)
      .That(options.step >= 1, "step must be at least 1");
  if (const Tensor& low = options.low_precision_parameter; !low.is_null()) {
    checks.Floating("low_precision_parameter", low)
        .Dense("low_precision_parameter", low, low.dtype(), shape)
        .That(low.dtype() != DType::kFloat32, "low_precision_parameter must not be float32");
  }
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kOptimizer);
    return cpu::AdamW(parameter, gradient, exp_avg, exp_avg_sq, options, cpu::NumThreads(stream));
  }
  return NoBackend("adamw", stream);
}

}  // namespace tessera
