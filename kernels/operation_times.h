// Wall time by operation family, for benchmarks. Off by default, and then one relaxed load a call.
// Says what it seems to on devices whose streams run everything in the call (CPU).
#ifndef TESSERA_KERNELS_OPERATION_TIMES_H_
#define TESSERA_KERNELS_OPERATION_TIMES_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace tessera {

enum class OperationFamily : uint8_t {
  kMatmul,
  kAttention,
  kEmbedding,
  kNorm,        // LayerNorm, RMSNorm
  kActivation,  // GELU, SwiGLU
  kRotary,
  kDropout,
  kCrossEntropy,
  kOptimizer,    // AdamW, squared norm
  kElementwise,  // sums, scaling, casts
};
inline constexpr int kNumOperationFamilies = 10;
const char* OperationFamilyName(OperationFamily family);  // "matmul"

// Of all threads of the process. Thread-safe.
class OperationTimes {
 public:
  // Starts counting, from 0, or stops.
  static void SetEnabled(bool enabled);
  // Seconds by family since SetEnabled(true), summed over the calling threads.
  static std::array<double, kNumOperationFamilies> seconds();

 private:
  friend class OperationTimer;
  static inline std::atomic<bool> enabled_{false};
  static inline std::array<std::atomic<int64_t>, kNumOperationFamilies> nanoseconds_{};
};

// Counts its own lifetime. Used by one thread.
class OperationTimer {
 public:
  explicit OperationTimer(OperationFamily family)
      : family_(family),
        start_(OperationTimes::enabled_.load(std::memory_order_relaxed) ? Now() : 0) {}
  ~OperationTimer() {
    if (start_ != 0) OperationTimes::nanoseconds_[static_cast<int>(family_)] += Now() - start_;
  }
  OperationTimer(const OperationTimer&) = delete;
  OperationTimer& operator=(const OperationTimer&) = delete;

 private:
  static int64_t Now();

  const OperationFamily family_;
  const int64_t start_;  // 0: off
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_OPERATION_TIMES_H_
