#include "kernels/squared_norm.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status SquaredNorm(const Tensor& input, const Tensor& output, Stream& stream) {
  ArgumentChecks checks("squared_norm", stream);
  checks.Floating("input", input)
      .Dense("input", input, input.dtype(), {input.num_elements()})
      .Dense("output", output, DType::kFloat32, {1});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kOptimizer);
    return cpu::SquaredNorm(input, output, cpu::NumThreads(stream));
  }
  return NoBackend("squared_norm", stream);
}

}  // namespace tessera
