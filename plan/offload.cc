#include "plan/offload.h"

#include <algorithm>

#include "plan/unit_sizes.h"

namespace tessera::plan {

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kNvme:
      return "nvme";
  }
  return "unknown";
}

std::vector<bool> OffloadedUnits(const StateOffload& offload, absl::Span<const int64_t> elements) {
  std::vector<bool> offloaded(elements.size(), false);
  if (!offload.is_on()) return offloaded;
  double total = 0, gone = 0;
  for (const int64_t count : elements) total += static_cast<double>(count);
  for (size_t unit = elements.size(); unit-- > 0 && gone < offload.fraction * total;) {
    offloaded[unit] = true;
    gone += static_cast<double>(elements[unit]);
  }
  return offloaded;
}

int64_t StatePieceElements(int64_t buffer_bytes) {
  constexpr int64_t kBytes = 3 * 4;
  const int64_t elements = buffer_bytes / kBytes / kUnitAlignmentElements * kUnitAlignmentElements;
  return std::max<int64_t>(elements, kUnitAlignmentElements);
}

}  // namespace tessera::plan
