#include "worker/zero/unit_layout.h"

#include <algorithm>

namespace tessera {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

ElementRange ElementRange::Intersect(const ElementRange& other) const {
  const int64_t from = std::max(begin, other.begin), to = std::min(end(), other.end());
  return {from, std::max<int64_t>(to - from, 0)};
}

bool UnitLayout::counts_all() const {
  return std::all_of(slots.begin(), slots.end(),
                     [](const ParameterSlot& slot) { return slot.is_counted; });
}

UnitLayout MakeUnitLayout(const UnitSpec& unit, int group_size) {
  UnitLayout layout;
  int64_t end = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const int64_t size = parameter.local_shape.num_elements();
    layout.slots.push_back({end, size, parameter.decays, parameter.is_counted});
    end = RoundUp(end + size, UnitLayout::kAlignmentElements);
  }
  layout.size_elements =
      RoundUp(std::max(end, unit.least_elements), UnitLayout::kAlignmentElements * group_size);
  layout.shard_elements = layout.size_elements / group_size;
  return layout;
}

}  // namespace tessera
