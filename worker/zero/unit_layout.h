// Where a unit's parameters lie in its flat buffer, and which part of it each rank of the zero
// group owns.
#ifndef TESSERA_WORKER_ZERO_UNIT_LAYOUT_H_
#define TESSERA_WORKER_ZERO_UNIT_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "plan/unit_sizes.h"
#include "worker/model/units.h"

namespace tessera {

struct ParameterSlot {
  int64_t offset_elements = 0;
  int64_t size_elements = 0;
  bool decays = false;
  bool is_counted = true;  // in the global norm
};

struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;

  int64_t end() const { return begin + count; }
  // Empty where they have nothing in common.
  ElementRange Intersect(const ElementRange& other) const;
};

struct UnitLayout {
  // Parameters and shards start at multiples of this: whole cache lines in every element type.
  static constexpr int64_t kAlignmentElements = plan::kUnitAlignmentElements;

  std::vector<ParameterSlot> slots;  // in the order of the unit's parameters, ascending
  int64_t size_elements = 0;         // group_size * shard_elements; padding is always 0
  int64_t shard_elements = 0;        // rank r owns [r, r + 1) * shard_elements

  bool counts_all() const;
  // Of the flat buffer: all of it, what a rank of the zero group owns, one parameter.
  ElementRange whole() const { return {0, size_elements}; }
  ElementRange shard(int group_rank) const { return {group_rank * shard_elements, shard_elements}; }
  ElementRange slot(int index) const {
    return {slots[index].offset_elements, slots[index].size_elements};
  }
};

// Pure. REQUIRES: group_size >= 1.
UnitLayout MakeUnitLayout(const UnitSpec& unit, int group_size);

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_UNIT_LAYOUT_H_
