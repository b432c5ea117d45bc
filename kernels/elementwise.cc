#include "kernels/elementwise.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tessera {

absl::Status Add(const Tensor& a, const Tensor& b, const Tensor& output, Stream& stream) {
  ArgumentChecks checks("add", stream);
  checks.Dense("a", a, DType::kFloat32, a.shape())
      .Dense("b", b, DType::kFloat32, a.shape())
      .Dense("output", output, DType::kFloat32, a.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    return cpu::Add(a, b, output, cpu::NumThreads(stream));
  }
  return NoBackend("add", stream);
}

absl::Status Scale(const Tensor& tensor, float factor, Stream& stream) {
  ArgumentChecks checks("scale", stream);
  checks.Dense("tensor", tensor, DType::kFloat32, tensor.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    return cpu::Scale(tensor, factor, cpu::NumThreads(stream));
  }
  return NoBackend("scale", stream);
}

}  // namespace tessera
