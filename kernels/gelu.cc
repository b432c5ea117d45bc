#include "kernels/gelu.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status GeluForward(const Tensor& input, const Tensor& output, Stream& stream) {
  ArgumentChecks checks("gelu_forward", stream);
  checks.Floating("input", input)
      .Dense("input", input, input.dtype(), input.shape())
      .Dense("output", output, input.dtype(), input.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kActivation);
    return cpu::GeluForward(input, output, cpu::NumThreads(stream));
  }
  return NoBackend("gelu_forward", stream);
}

absl::Status GeluBackward(const Tensor& input, const Tensor& d_output, const Tensor& d_input,
                          Stream& stream) {
  ArgumentChecks checks("gelu_backward", stream);
  checks.Floating("input", input)
      .Dense("input", input, input.dtype(), input.shape())
      .Dense("d_output", d_output, input.dtype(), input.shape())
      .Dense("d_input", d_input, input.dtype(), input.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kActivation);
    return cpu::GeluBackward(input, d_output, d_input, cpu::NumThreads(stream));
  }
  return NoBackend("gelu_backward", stream);
}

}  // namespace tessera
