#include "kernels/rotary.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status RotaryTable(const RotaryOptions& options, int64_t first_position,
                         const Tensor& positions, const Tensor& table, Stream& stream) {
  const int64_t time = table.shape().num_rows(), size = table.shape().last_dim();
  ArgumentChecks checks("rotary_table", stream);
  checks.Dense("table", table, DType::kFloat32, {time, size})
      .That(size % 2 == 0, "table must have an even number of columns")
      .That(options.theta > 0, "theta must be above 0")
      .That(first_position >= 0, "first_position must be at least 0");
  if (!positions.is_null()) checks.Dense("positions", positions, DType::kInt32, {time});
  if (options.scaling.has_value()) {
    checks
        .That(options.scaling->factor > 0 && options.scaling->original_length > 0,
              "the scaling's factor and original_length must be above 0")
        .That(options.scaling->low_frequency_factor > 0 &&
                  options.scaling->high_frequency_factor > options.scaling->low_frequency_factor,
              "the scaling needs 0 < low_frequency_factor < high_frequency_factor");
  }
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kRotary);
    return cpu::RotaryTable(options, first_position, positions, table, cpu::NumThreads(stream));
  }
  return NoBackend("rotary_table", stream);
}

absl::Status Rotary(const Tensor& table, bool inverse, const Tensor& x, Stream& stream) {
  const int64_t time = table.shape().num_rows(), size = table.shape().last_dim();
  const int64_t m = x.shape().num_rows(), columns = x.shape().last_dim();
  ArgumentChecks checks("rotary", stream);
  checks.Dense("table", table, DType::kFloat32, {time, size})
      .Floating("x", x)
      .Rows("x", x, x.dtype(), {m, columns})
      .That(size >= 2 && size % 2 == 0 && columns % size == 0,
            "table's columns must be even and divide the columns of x")
      .That(time >= 1 && m % time == 0, "table's rows must divide the rows of x");
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kRotary);
    return cpu::Rotary(table, inverse, x, cpu::NumThreads(stream));
  }
  return NoBackend("rotary", stream);
}

}  // namespace tessera
