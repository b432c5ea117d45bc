#include "kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {
namespace {

bool IsMatrix(const Tensor& tensor) { return tensor.shape().num_dims() == 2; }

absl::Status CheckMatmul(const Tensor& a, const Tensor& b, const Tensor& output,
                         const MatmulOptions& options, Stream& stream) {
  ArgumentChecks checks("matmul", stream);
  checks.That(IsMatrix(a) && IsMatrix(b) && IsMatrix(output), "all operands must be matrices");
  if (!checks.status().ok()) return checks.status();
  const int64_t m = output.shape().dim(0), n = output.shape().dim(1);
  const DType out = output.dtype() == DType::kFloat32 ? DType::kFloat32 : a.dtype();
  const int64_t k = a.shape().dim(options.transpose_a ? 0 : 1);
  checks.Floating("a", a)
      .Rows("a", a, a.dtype(), options.transpose_a ? Shape{k, m} : Shape{m, k})
      .Rows("b", b, a.dtype(), options.transpose_b ? Shape{n, k} : Shape{k, n})
      .Rows("output", output, out, {m, n})
      .That(!options.accumulate || (options.bias.is_null() && options.addend.is_null()),
            "accumulate excludes bias and addend");
  if (!options.bias.is_null()) checks.Dense("bias", options.bias, a.dtype(), {n});
  if (!options.addend.is_null()) checks.Rows("addend", options.addend, out, {m, n});
  return checks.status();
}

}  // namespace

absl::Status Matmul(const Tensor& a, const Tensor& b, const Tensor& output,
                    const MatmulOptions& options, Stream& stream) {
  if (absl::Status status = CheckMatmul(a, b, output, options, stream); !status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kMatmul);
    return cpu::Matmul(a, b, output, options, cpu::NumThreads(stream));
  }
  return NoBackend("matmul", stream);
}

absl::Status AddRowSum(const Tensor& input, const Tensor& output, Stream& stream) {
  const int64_t m = input.shape().num_rows(), n = input.shape().last_dim();
  ArgumentChecks checks("add_row_sum", stream);
  checks.Floating("input", input)
      .Rows("input", input, input.dtype(), {m, n})
      .Accumulated("output", output, input.dtype(), {n});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kMatmul);
    return cpu::AddRowSum(input, output, cpu::NumThreads(stream));
  }
  return NoBackend("add_row_sum", stream);
}

}  // namespace tessera
