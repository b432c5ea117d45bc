// Sizes of a rank's units: the parameters that are gathered, reduced and sharded together
// (worker/model/units.h), as far as plans need them.
#ifndef TESSERA_PLAN_UNIT_SIZES_H_
#define TESSERA_PLAN_UNIT_SIZES_H_

#include <cstdint>
#include <vector>

#include "plan/mesh.h"
#include "plan/model_sizes.h"
#include "plan/stage_partition.h"

namespace tessera::plan {

// Parameters and shards start at multiples of this (worker/zero/unit_layout.h).
inline constexpr int kUnitAlignmentElements = 32;

enum class UnitKind : uint8_t { kEmbedding, kLayer, kHead };

struct UnitSize {
  UnitKind kind = UnitKind::kLayer;
  int chunk = 0;  // of the rank's
  int layer = 0;  // of the whole model; kLayer only
  // Elements of each parameter on the rank, in the order of its unit (worker/model/units.h).
  std::vector<BigSize> parameters;
  // Where a tied embedding is on two stages, both units are as large, so that their shards are of
  // the same elements.
  BigSize least_elements = 0;

  // Without alignment and padding.
  BigSize parameter_elements() const;
  // Of the flat buffer, divisible by group_size.
  BigSize padded_elements(int group_size) const;
  // What one rank of the zero group owns of it.
  BigSize shard_elements(int group_size) const { return padded_elements(group_size) / group_size; }
};

// Elements from one array of a unit's optimizer state to the next. Where they would lie whole MiB
// apart, the update's streams take turns in the same places of the cache and the update takes twice
// as long (./dev bench kernels, 2^26 elements); 16 KiB more keep them apart.
template <typename Size>
Size StateStrideElements(Size elements) {
  constexpr int kMebibyteElements = (1 << 20) / 4, kApartElements = (16 << 10) / 4;
  return elements % kMebibyteElements == 0 ? elements + kApartElements : elements;
}

// Of the rank that has `chunks`, in forward order. The same on all ranks but for chunks. REQUIRES:
// CheckLayout (plan/layout_check.h) has no fault.
std::vector<UnitSize> UnitSizesOf(const ModelSizes& model, const MeshSize& mesh,
                                  const std::vector<StageChunk>& chunks);

// Parameters of the whole model, tied ones once.
BigSize NumParameters(const ModelSizes& model);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_UNIT_SIZES_H_
