// Bookkeeping of one device's memory: which bytes of [0, capacity) are taken, and for what.
//
// Every device allocation goes through an Arena; the memory itself belongs to the Device.
#ifndef TESSERA_KERNELS_ARENA_H_
#define TESSERA_KERNELS_ARENA_H_

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

enum class MemoryCategory : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspace,
};
inline constexpr int kNumMemoryCategories = 6;
const char* MemoryCategoryName(MemoryCategory category);

struct CategoryUsage {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

struct ArenaUsage {
  int64_t capacity_bytes = 0;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;          // of the sum; less than the sum of the categories' peaks
  int64_t largest_free_bytes = 0;  // largest request that would succeed now
  std::array<CategoryUsage, kNumMemoryCategories> category;
};

// Best fit with coalescing over offsets. Thread-safe.
class Arena {
 public:
  // Allocations start at multiples of this (a cache-line pair and an AVX-512 vector).
  static constexpr int64_t kAlignmentBytes = 128;

  // owner names the device in errors, e.g. "workers/w0 cpu:0".
  Arena(std::string owner, int64_t capacity_bytes);

  // Offset of size_bytes (rounded up to the alignment). RESOURCE_EXHAUSTED names owner, category,
  // `what`, the request and what is held. REQUIRES: size_bytes >= 0.
  absl::StatusOr<int64_t> Allocate(int64_t size_bytes, MemoryCategory category,
                                   absl::string_view what);
  // REQUIRES: offset came from Allocate and is not yet freed.
  void Free(int64_t offset_bytes);
  // Starts a new peak measurement: peaks fall to the current values.
  void ResetPeaks();

  ArenaUsage usage() const;
  int64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct Block {
    int64_t size_bytes;
    MemoryCategory category;
  };
  int64_t LargestFreeLocked() const;
  std::string HeldLocked() const;

  const std::string owner_;
  const int64_t capacity_bytes_;
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  // offset -> size, coalesced; guarded by mutex_
  std::map<int64_t, Block> held_;    // guarded by mutex_
  ArenaUsage usage_;                 // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_ARENA_H_
