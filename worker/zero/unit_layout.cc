#include "worker/zero/unit_layout.h"

namespace tessera {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

UnitLayout MakeUnitLayout(const UnitSpec& unit, int group_size) {
  UnitLayout layout;
  int64_t end = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    layout.slots.push_back({end, parameter.shape.num_elements(), parameter.decays});
    end = RoundUp(end + parameter.shape.num_elements(), UnitLayout::kAlignmentElements);
  }
  layout.size_elements = RoundUp(end, UnitLayout::kAlignmentElements * group_size);
  layout.shard_elements = layout.size_elements / group_size;
  return layout;
}

}  // namespace tessera
