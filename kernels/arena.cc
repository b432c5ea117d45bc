#include "kernels/arena.h"

#include <algorithm>
#include <utility>

#include "absl/base/internal/raw_logging.h"
#include "absl/strings/str_cat.h"

namespace tessera {

const char* MemoryCategoryName(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kCommunication:
      return "communication";
    case MemoryCategory::kWorkspace:
      return "workspace";
  }
  return "unknown";
}

Arena::Arena(std::string owner, int64_t capacity_bytes)
    : owner_(std::move(owner)), capacity_bytes_(capacity_bytes) {
  free_[0] = capacity_bytes;
  usage_.capacity_bytes = capacity_bytes;
}

absl::StatusOr<int64_t> Arena::Allocate(int64_t size_bytes, MemoryCategory category,
                                        absl::string_view what) {
  const int64_t rounded =
      std::max<int64_t>(1, (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes) * kAlignmentBytes;
  std::lock_guard<std::mutex> lock(mutex_);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= rounded && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best == free_.end()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        owner_, ": device memory exhausted: ", what, " (", MemoryCategoryName(category), ") needs ",
        rounded, " bytes, the largest free block of ", capacity_bytes_, " bytes is ",
        LargestFreeLocked(), "; held: ", HeldLocked()));
  }
  const int64_t offset = best->first;
  const int64_t rest = best->second - rounded;
  free_.erase(best);
  if (rest > 0) free_[offset + rounded] = rest;
  held_[offset] = Block{rounded, category};
  CategoryUsage& use = usage_.category[static_cast<int>(category)];
  use.current_bytes += rounded;
  use.peak_bytes = std::max(use.peak_bytes, use.current_bytes);
  usage_.current_bytes += rounded;
  usage_.peak_bytes = std::max(usage_.peak_bytes, usage_.current_bytes);
  return offset;
}

void Arena::Free(int64_t offset_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = held_.find(offset_bytes);
  if (it == held_.end()) {
    ABSL_RAW_LOG(FATAL, "%s: free of offset %ld, which is not held", owner_.c_str(),
                 static_cast<long>(offset_bytes));
  }
  int64_t begin = offset_bytes;
  int64_t size = it->second.size_bytes;
  usage_.category[static_cast<int>(it->second.category)].current_bytes -= size;
  usage_.current_bytes -= size;
  held_.erase(it);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += size;
      return;
    }
  }
  free_[begin] = size;
}

void Arena::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  usage_.peak_bytes = usage_.current_bytes;
  for (CategoryUsage& use : usage_.category) use.peak_bytes = use.current_bytes;
}

ArenaUsage Arena::usage() const {
  std::lock_guard<std::mutex> lock(mutex_);
  ArenaUsage usage = usage_;
  usage.largest_free_bytes = LargestFreeLocked();
  return usage;
}

int64_t Arena::LargestFreeLocked() const {
  int64_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  return largest;
}

std::string Arena::HeldLocked() const {
  std::string text;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", MemoryCategoryName(static_cast<MemoryCategory>(i)),
                    " ", usage_.category[i].current_bytes);
  }
  return text;
}

}  // namespace tessera
