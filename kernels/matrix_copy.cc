#include "kernels/matrix_copy.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status CopyMatrix(const Tensor& from, const Tensor& to, Stream& stream) {
  ArgumentChecks checks("copy_matrix", stream);
  const bool converts = IsFloating(from.dtype()) && IsFloating(to.dtype());
  checks.That(from.shape().num_dims() == 2, "the matrix must have two dims")
      .Rows("from", from, from.dtype(), from.shape())
      .Rows("to", to, converts ? to.dtype() : from.dtype(), from.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kElementwise);
    return cpu::CopyMatrix(from, to, cpu::NumThreads(stream));
  }
  return NoBackend("copy_matrix", stream);
}

absl::Status AddInto(const Tensor& input, const Tensor& sum, Stream& stream) {
  ArgumentChecks checks("add_into", stream);
  checks.That(input.shape().num_dims() == 2, "the matrix must have two dims")
      .Floating("input", input)
      .Rows("input", input, input.dtype(), input.shape())
      .Rows("sum", sum, DType::kFloat32, input.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kElementwise);
    return cpu::AddInto(input, sum, cpu::NumThreads(stream));
  }
  return NoBackend("add_into", stream);
}

}  // namespace tessera
