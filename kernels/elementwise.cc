#include "kernels/elementwise.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status Add(const Tensor& a, const Tensor& b, const Tensor& output, Stream& stream) {
  ArgumentChecks checks("add", stream);
  checks.Floating("a", a)
      .Dense("a", a, a.dtype(), a.shape())
      .Dense("b", b, a.dtype(), a.shape())
      .Dense("output", output, a.dtype(), a.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kElementwise);
    return cpu::Add(a, b, output, cpu::NumThreads(stream));
  }
  return NoBackend("add", stream);
}

absl::Status Scale(const Tensor& tensor, float factor, Stream& stream) {
  ArgumentChecks checks("scale", stream);
  checks.Floating("tensor", tensor).Dense("tensor", tensor, tensor.dtype(), tensor.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kElementwise);
    return cpu::Scale(tensor, factor, cpu::NumThreads(stream));
  }
  return NoBackend("scale", stream);
}

}  // namespace tessera
