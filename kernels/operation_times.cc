#include "kernels/operation_times.h"

#include <chrono>

namespace tessera {

const char* OperationFamilyName(OperationFamily family) {
  switch (family) {
    case OperationFamily::kMatmul:
      return "matmul";
    case OperationFamily::kAttention:
      return "attention";
    case OperationFamily::kEmbedding:
      return "embedding";
    case OperationFamily::kNorm:
      return "norm";
    case OperationFamily::kActivation:
      return "activation";
    case OperationFamily::kRotary:
      return "rotary";
    case OperationFamily::kDropout:
      return "dropout";
    case OperationFamily::kCrossEntropy:
      return "cross_entropy";
    case OperationFamily::kOptimizer:
      return "optimizer";
    case OperationFamily::kElementwise:
      return "elementwise";
  }
  return "unknown";
}

void OperationTimes::SetEnabled(bool enabled) {
  if (enabled) {
    for (auto& total : nanoseconds_) total = 0;
  }
  enabled_ = enabled;
}

std::array<double, kNumOperationFamilies> OperationTimes::seconds() {
  std::array<double, kNumOperationFamilies> seconds;
  for (int i = 0; i < kNumOperationFamilies; ++i) {
    seconds[i] = static_cast<double>(nanoseconds_[i].load()) * 1e-9;
  }
  return seconds;
}

int64_t OperationTimer::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tessera
