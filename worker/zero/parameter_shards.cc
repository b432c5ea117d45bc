#include "worker/zero/parameter_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

int64_t NumParameters(const UnitLayout& layout) {
  int64_t total = 0;
  for (const ParameterSlot& slot : layout.slots) total += slot.size_elements;
  return total;
}

}  // namespace

std::vector<Tensor> ParameterViews(const UnitSpec& spec, const UnitLayout& layout,
                                   const Tensor& flat) {
  std::vector<Tensor> views;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSlot& slot = layout.slots[i];
    views.push_back(flat.Slice(slot.offset_elements, slot.size_elements)
                        .Reshape(spec.parameters[i].local_shape));
  }
  return views;
}

absl::Status ParameterShards::AddUnit(const UnitSpec& spec, const UnitLayout& layout,
                                      Stream& stream) {
  Unit unit;
  unit.spec = &spec;
  unit.layout = layout;
  unit.is_sharded = options_.zero_stage == 3 && group_ != nullptr &&
                    NumParameters(layout) > options_.resident_parameters;
  unit.held = unit.is_sharded ? layout.shard(group_->group_rank()) : layout.whole();
  const Shape shape{unit.held.count};
  TESSERA_ASSIGN_OR_RETURN(
      unit.buffer, device_.Allocate(shape.num_elements() * DTypeSizeBytes(options_.parameter_dtype),
                                    MemoryCategory::kParameters, absl::StrCat("unit ", spec.name)));
  unit.tensor = unit.buffer.View(options_.parameter_dtype, shape);
  if (!unit.is_sharded) unit.views = ParameterViews(spec, layout, unit.tensor);
  TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.tensor, stream));
  units_.push_back(std::move(unit));
  return absl::OkStatus();
}

absl::Status ParameterShards::Gather(Unit& unit, Stream& stream) {
  const Shape shape{unit.layout.size_elements};
  TESSERA_ASSIGN_OR_RETURN(
      unit.gathered,
      device_.Allocate(shape.num_elements() * DTypeSizeBytes(options_.parameter_dtype),
                       MemoryCategory::kCommunication,
                       absl::StrCat("gathered unit ", unit.spec->name)));
  const Tensor whole = unit.gathered.View(options_.parameter_dtype, shape);
  unit.views = ParameterViews(*unit.spec, unit.layout, whole);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> handle,
                           group_->StartAllGather(unit.tensor, whole, stream));
  unit.gathering = queue_.Add(std::move(handle), [] { return absl::OkStatus(); });
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const Tensor>> ParameterShards::Acquire(int index, Stream& stream) {
  Unit& unit = units_[index];
  if (!unit.is_sharded) return absl::MakeConstSpan(unit.views);
  if (unit.views.empty()) TESSERA_RETURN_IF_ERROR(Gather(unit, stream));
  TESSERA_RETURN_IF_ERROR(queue_.WaitFor(unit.gathering));
  ++unit.users;
  return absl::MakeConstSpan(unit.views);
}

absl::Status ParameterShards::Release(int index) {
  Unit& unit = units_[index];
  if (!unit.is_sharded || --unit.users > 0) return absl::OkStatus();
  unit.views.clear();
  unit.gathered = DeviceBuffer();
  return absl::OkStatus();
}

absl::Status ParameterShards::Prefetch(absl::Span<const int> units, Stream& stream) {
  for (const int index : units.first(std::min<size_t>(units.size(), options_.prefetch_units))) {
    Unit& unit = units_[index];
    if (!unit.is_sharded || !unit.views.empty()) continue;
    TESSERA_RETURN_IF_ERROR(Gather(unit, stream));
  }
  return absl::OkStatus();
}

}  // namespace tessera
