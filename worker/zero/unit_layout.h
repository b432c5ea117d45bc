// Where a unit's parameters lie in its flat buffer, and which part of it each rank of the zero
// group owns.
#ifndef TESSERA_WORKER_ZERO_UNIT_LAYOUT_H_
#define TESSERA_WORKER_ZERO_UNIT_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "worker/model/units.h"

namespace tessera {

struct ParameterSlot {
  int64_t offset_elements = 0;
  int64_t size_elements = 0;
  bool decays = false;
  bool is_counted = true;  // in the global norm
};

struct UnitLayout {
  // Parameters and shards start at multiples of this: whole cache lines in every element type.
  static constexpr int64_t kAlignmentElements = 32;

  std::vector<ParameterSlot> slots;  // in the order of the unit's parameters, ascending
  int64_t size_elements = 0;         // group_size * shard_elements; padding is always 0
  int64_t shard_elements = 0;        // rank r owns [r, r + 1) * shard_elements

  bool counts_all() const;
};

// Pure. REQUIRES: group_size >= 1.
UnitLayout MakeUnitLayout(const UnitSpec& unit, int group_size);

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_UNIT_LAYOUT_H_
