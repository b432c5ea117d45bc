#include "kernels/attention_merge.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status MergeAttention(const Tensor& partial, const Tensor& partial_log_sum_exp,
                            int64_t query_rows, const Tensor& output, const Tensor& log_sum_exp,
                            Stream& stream) {
  ArgumentChecks checks("attention_merge", stream);
  checks.That(partial_log_sum_exp.shape().num_dims() == 3, "log_sum_exp must have three dims");
  if (!checks.status().ok()) return checks.status();
  const Shape& sums = partial_log_sum_exp.shape();
  const int64_t batch = sums.dim(0), heads = sums.dim(1), time = sums.dim(2);
  if (query_rows == 0) query_rows = time;
  checks
      .That(batch >= 1 && heads >= 1 && time >= 1 && query_rows >= time,
            "sizes must be at least 1 and query_rows 0 or at least time")
      .That(heads >= 1 && partial.shape().last_dim() % heads == 0,
            "the heads must have equally many channels");
  if (!checks.status().ok()) return checks.status();
  const Shape rows{(batch - 1) * query_rows + time, partial.shape().last_dim()};
  checks.Floating("partial", partial)
      .Rows("partial", partial, partial.dtype(), rows)
      .Rows("partial_log_sum_exp", partial_log_sum_exp, DType::kFloat32, sums)
      .Rows("output", output, DType::kFloat32, rows)
      .Rows("log_sum_exp", log_sum_exp, DType::kFloat32, sums);
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kAttention);
    return cpu::MergeAttention(partial, partial_log_sum_exp, query_rows, output, log_sum_exp,
                               cpu::NumThreads(stream));
  }
  return NoBackend("attention_merge", stream);
}

}  // namespace tessera
