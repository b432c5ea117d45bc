#include "worker/zero/parameter_shards.h"

#include <algorithm>
#include <memory>
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

ParameterShards::~ParameterShards() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    if (units_[unit].is_fetching) offload_.tier->FinishFetch(unit).IgnoreError();
  }
}

absl::Status ParameterShards::AddUnit(const UnitSpec& spec, const UnitLayout& layout,
                                      Stream& stream) {
  Unit unit;
  unit.spec = &spec;
  unit.layout = layout;
  unit.is_sharded = options_.zero_stage == 3 && group_ != nullptr &&
                    NumParameters(layout) > options_.resident_parameters;
  unit.held = unit.is_sharded ? layout.shard(group_->group_rank()) : layout.whole();
  const int index = static_cast<int>(units_.size());
  if (offload_.has(index)) {
    TESSERA_RETURN_IF_ERROR(
        offload_.tier->AddUnit(index, spec.name, options_.parameter_dtype, unit.held.count));
    units_.push_back(std::move(unit));
    return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(AllocateHeld(unit, MemoryCategory::kParameters));
  if (!unit.is_sharded) unit.views = ParameterViews(spec, layout, unit.tensor);
  TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.tensor, stream));
  units_.push_back(std::move(unit));
  return absl::OkStatus();
}

absl::Status ParameterShards::AllocateHeld(Unit& unit, MemoryCategory category) {
  const Shape shape{unit.held.count};
  TESSERA_ASSIGN_OR_RETURN(
      unit.buffer, device_.Allocate(shape.num_elements() * DTypeSizeBytes(options_.parameter_dtype),
                                    category, absl::StrCat("unit ", unit.spec->name)));
  unit.tensor = unit.buffer.View(options_.parameter_dtype, shape);
  return absl::OkStatus();
}

absl::Status ParameterShards::Gather(int index, Stream& stream) {
  Unit& unit = units_[index];
  const Shape shape{unit.layout.size_elements};
  TESSERA_ASSIGN_OR_RETURN(
      unit.gathered,
      device_.Allocate(shape.num_elements() * DTypeSizeBytes(options_.parameter_dtype),
                       MemoryCategory::kCommunication,
                       absl::StrCat("gathered unit ", unit.spec->name)));
  unit.whole = unit.gathered.View(options_.parameter_dtype, shape);
  unit.views = ParameterViews(*unit.spec, unit.layout, unit.whole);
  if (!offload_.has(index)) return StartAllGather(unit, unit.tensor, stream);
  unit.is_fetching = true;
  return offload_.tier->StartFetch(index, unit.whole.Slice(unit.held.begin, unit.held.count),
                                   stream);
}

absl::Status ParameterShards::StartAllGather(Unit& unit, const Tensor& own, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> handle,
                           group_->StartAllGather(own, unit.whole, stream));
  unit.gathering = queue_.Add(std::move(handle), [] { return absl::OkStatus(); });
  return absl::OkStatus();
}

absl::Status ParameterShards::FinishFetch(int index, Stream& stream) {
  Unit& unit = units_[index];
  if (!std::exchange(unit.is_fetching, false)) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(offload_.tier->FinishFetch(index));
  if (!unit.is_sharded) return absl::OkStatus();
  return StartAllGather(unit, unit.whole.Slice(unit.held.begin, unit.held.count), stream);
}

absl::StatusOr<absl::Span<const Tensor>> ParameterShards::Acquire(int index, Stream& stream) {
  Unit& unit = units_[index];
  if (!comes_and_goes(index)) return absl::MakeConstSpan(unit.views);
  if (unit.views.empty()) TESSERA_RETURN_IF_ERROR(Gather(index, stream));
  TESSERA_RETURN_IF_ERROR(FinishFetch(index, stream));
  if (unit.is_sharded) TESSERA_RETURN_IF_ERROR(queue_.WaitFor(unit.gathering));
  ++unit.users;
  return absl::MakeConstSpan(unit.views);
}

absl::Status ParameterShards::Release(int index) {
  Unit& unit = units_[index];
  if (!comes_and_goes(index) || --unit.users > 0) return absl::OkStatus();
  unit.views.clear();
  unit.gathered = DeviceBuffer();
  return absl::OkStatus();
}

absl::Status ParameterShards::Prefetch(absl::Span<const int> units, Stream& stream) {
  for (const int index : units.first(std::min<size_t>(units.size(), options_.prefetch_units))) {
    if (!comes_and_goes(index) || !units_[index].views.empty()) continue;
    TESSERA_RETURN_IF_ERROR(Gather(index, stream));
  }
  return absl::OkStatus();
}

absl::Status ParameterShards::BeginUpdate(int index, bool keep, Stream& stream) {
  if (!offload_.has(index)) return absl::OkStatus();
  Unit& unit = units_[index];
  TESSERA_RETURN_IF_ERROR(AllocateHeld(unit, MemoryCategory::kCommunication));
  if (!keep) return device_.SetZero(unit.tensor, stream);  // padding stays 0
  TESSERA_RETURN_IF_ERROR(offload_.tier->StartFetch(index, unit.tensor, stream));
  return offload_.tier->FinishFetch(index);
}

absl::Status ParameterShards::EndUpdate(int index, Stream& stream) {
  if (!offload_.has(index)) return absl::OkStatus();
  Unit& unit = units_[index];
  TESSERA_RETURN_IF_ERROR(offload_.tier->Store(index, unit.tensor, stream));
  unit.tensor = Tensor();
  unit.buffer = DeviceBuffer();
  return absl::OkStatus();
}

}  // namespace tessera
