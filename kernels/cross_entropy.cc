#include "kernels/cross_entropy.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tessera {

absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses,
                          Stream& stream) {
  const int64_t m = logits.shape().num_rows(), columns = logits.shape().last_dim();
  ArgumentChecks checks("cross_entropy", stream);
  checks.Rows("logits", logits, DType::kFloat32, {m, columns})
      .Dense("targets", targets, DType::kInt32, {m})
      .Dense("losses", losses, DType::kFloat32, {m})
      .That(options.num_classes >= 1 && options.num_classes <= columns,
            "num_classes must be at least 1 and at most the columns of logits");
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    return cpu::CrossEntropy(logits, targets, options, losses, cpu::NumThreads(stream));
  }
  return NoBackend("cross_entropy", stream);
}

}  // namespace tessera
