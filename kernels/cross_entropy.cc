#include "kernels/cross_entropy.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {
namespace {

void CheckSlice(const Tensor& logits, const Tensor& targets, int64_t num_classes,
                const VocabularySlice& slice, ArgumentChecks& checks) {
  const int64_t m = logits.shape().num_rows(), columns = logits.shape().last_dim();
  checks.Floating("logits", logits)
      .Rows("logits", logits, logits.dtype(), {m, columns})
      .Dense("targets", targets, DType::kInt32, {m})
      .That(slice.slice_classes >= 0 && slice.slice_classes <= columns,
            "slice_classes must be at least 0 and at most the columns of logits")
      .That(slice.first_class >= 0 && slice.first_class + slice.slice_classes <= num_classes,
            "the slice's classes must be in [0, num_classes)");
}

}  // namespace

absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses,
                          Stream& stream) {
  const int64_t m = logits.shape().num_rows(), columns = logits.shape().last_dim();
  ArgumentChecks checks("cross_entropy", stream);
  checks.Floating("logits", logits)
      .Rows("logits", logits, logits.dtype(), {m, columns})
      .Dense("targets", targets, DType::kInt32, {m})
      .Dense("losses", losses, DType::kFloat32, {m})
      .That(options.num_classes >= 1 && options.num_classes <= columns,
            "num_classes must be at least 1 and at most the columns of logits");
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kCrossEntropy);
    return cpu::CrossEntropy(logits, targets, options, losses, cpu::NumThreads(stream));
  }
  return NoBackend("cross_entropy", stream);
}

absl::Status CrossEntropyStatistics(const Tensor& logits, const Tensor& targets,
                                    int64_t num_classes, const VocabularySlice& slice,
                                    const Tensor& row_max, const Tensor& exp_sum,
                                    const Tensor& target_logit, Stream& stream) {
  const int64_t m = logits.shape().num_rows();
  ArgumentChecks checks("cross_entropy_statistics", stream);
  CheckSlice(logits, targets, num_classes, slice, checks);
  checks.Dense("row_max", row_max, DType::kFloat32, {m})
      .Dense("exp_sum", exp_sum, DType::kFloat32, {m})
      .Dense("target_logit", target_logit, DType::kFloat32, {m});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kCrossEntropy);
    return cpu::CrossEntropyStatistics(logits, targets, num_classes, slice, row_max, exp_sum,
                                       target_logit, cpu::NumThreads(stream));
  }
  return NoBackend("cross_entropy_statistics", stream);
}

absl::Status CombineCrossEntropy(const Tensor& row_max, const Tensor& exp_sum,
                                 const Tensor& target_logit, const Tensor& targets,
                                 const Tensor& log_sum_exp, const Tensor& losses, Stream& stream) {
  const int64_t slices = row_max.shape().num_rows(), m = row_max.shape().last_dim();
  ArgumentChecks checks("combine_cross_entropy", stream);
  checks.Dense("row_max", row_max, DType::kFloat32, {slices, m})
      .Dense("exp_sum", exp_sum, DType::kFloat32, {slices, m})
      .Dense("target_logit", target_logit, DType::kFloat32, {slices, m})
      .Dense("targets", targets, DType::kInt32, {m})
      .Dense("log_sum_exp", log_sum_exp, DType::kFloat32, {m})
      .Dense("losses", losses, DType::kFloat32, {m});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kCrossEntropy);
    return cpu::CombineCrossEntropy(row_max, exp_sum, target_logit, targets, log_sum_exp, losses,
                                    cpu::NumThreads(stream));
  }
  return NoBackend("combine_cross_entropy", stream);
}

absl::Status CrossEntropyGradient(const Tensor& logits, const Tensor& targets,
                                  const CrossEntropyOptions& options, const VocabularySlice& slice,
                                  const Tensor& log_sum_exp, Stream& stream) {
  const int64_t m = logits.shape().num_rows();
  ArgumentChecks checks("cross_entropy_gradient", stream);
  CheckSlice(logits, targets, options.num_classes, slice, checks);
  checks.Dense("log_sum_exp", log_sum_exp, DType::kFloat32, {m});
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kCrossEntropy);
    return cpu::CrossEntropyGradient(logits, targets, options, slice, log_sum_exp,
                                     cpu::NumThreads(stream));
  }
  return NoBackend("cross_entropy_gradient", stream);
}

}  // namespace tessera
