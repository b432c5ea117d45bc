#include "kernels/cast.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status Cast(const Tensor& input, const Tensor& output, Stream& stream) {
  ArgumentChecks checks("cast", stream);
  checks.Floating("input", input)
      .Floating("output", output)
      .Dense("input", input, input.dtype(), input.shape())
      .Dense("output", output, output.dtype(), input.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kElementwise);
    return cpu::Cast(input, output, cpu::NumThreads(stream));
  }
  return NoBackend("cast", stream);
}

}  // namespace tessera
