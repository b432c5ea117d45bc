#include "kernels/dropout.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status Dropout(const Tensor& input, const DropoutOptions& options, const Tensor& output,
                     Stream& stream) {
  const int64_t m = input.shape().num_rows(), columns = input.shape().last_dim();
  ArgumentChecks checks("dropout", stream);
  checks.Floating("input", input)
      .Rows("input", input, input.dtype(), {m, columns})
      .Rows("output", output, input.dtype(), {m, columns})
      .That(options.probability >= 0 && options.probability < 1, "probability must be in [0, 1)")
      .That(options.first_index >= 0, "first_index must be at least 0")
      .That(options.row_elements == 0 || options.row_elements >= columns,
            "row_elements must be 0 or at least the columns of input");
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kDropout);
    return cpu::Dropout(input, options, output, cpu::NumThreads(stream));
  }
  return NoBackend("dropout", stream);
}

}  // namespace tessera
