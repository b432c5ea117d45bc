#include "worker/zero/gradient_shards.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise.h"
#include "kernels/status_macros.h"
#include "worker/zero/parameter_shards.h"

namespace tessera {

absl::Status GradientShards::AddUnit(const UnitSpec& spec, const UnitLayout& layout) {
  Unit unit;
  unit.spec = &spec;
  unit.layout = layout;
  if (keeps_whole()) TESSERA_RETURN_IF_ERROR(AllocateWhole(unit));
  if (!keeps_whole() || accumulates()) {
    const Shape shape{layout.shard_elements};
    TESSERA_ASSIGN_OR_RETURN(
        unit.reduced_buffer,
        device_.Allocate(shape.num_elements() * DTypeSizeBytes(options_.gradient_dtype),
                         MemoryCategory::kGradients, absl::StrCat("unit ", spec.name)));
    unit.reduced = unit.reduced_buffer.View(options_.gradient_dtype, shape);
  } else {
    const ElementRange own = layout.shard(group_ == nullptr ? 0 : group_->group_rank());
    unit.reduced = unit.whole.Slice(own.begin, own.count);
  }
  units_.push_back(std::move(unit));
  return absl::OkStatus();
}

absl::Status GradientShards::AllocateWhole(Unit& unit) {
  const Shape shape{unit.layout.size_elements};
  TESSERA_ASSIGN_OR_RETURN(
      unit.whole_buffer,
      device_.Allocate(
          shape.num_elements() * DTypeSizeBytes(options_.gradient_dtype),
          keeps_whole() ? MemoryCategory::kGradients : MemoryCategory::kCommunication,
          absl::StrCat(keeps_whole() ? "unit " : "whole gradients of unit ", unit.spec->name)));
  unit.whole = unit.whole_buffer.View(options_.gradient_dtype, shape);
  unit.views = ParameterViews(*unit.spec, unit.layout, unit.whole);
  unit.is_clear = false;
  return absl::OkStatus();
}

void GradientShards::Clear() {
  for (Unit& unit : units_) {
    unit.is_clear = false;
    unit.has_reduced = false;
    unit.ready = 0;
  }
}

absl::StatusOr<absl::Span<const Tensor>> GradientShards::Acquire(int index, Stream& stream) {
  Unit& unit = units_[index];
  // Its last reduction may still read what is there.
  TESSERA_RETURN_IF_ERROR(queue_.WaitFor(unit.reducing));
  if (unit.views.empty()) TESSERA_RETURN_IF_ERROR(AllocateWhole(unit));
  if (!unit.is_clear) TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.whole, stream));
  unit.is_clear = true;
  return absl::MakeConstSpan(unit.views);
}

absl::Status GradientShards::Ready(int index, Stream& stream) {
  Unit& unit = units_[index];
  ++unit.ready;
  const bool each = options_.reduction == plan::GradientReduction::kPerMicroBatch;
  if (!each && unit.ready < options_.micro_batches) return absl::OkStatus();
  if (before_reduction_) TESSERA_RETURN_IF_ERROR(before_reduction_(index));
  return options_.defers_reduction ? absl::OkStatus() : Reduce(unit, stream);
}

absl::Status GradientShards::Reduce(Unit& unit, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(queue_.WaitForAll());  // one pending reduction is enough
  const bool is_first = !unit.has_reduced;
  const ElementRange own = unit.layout.shard(group_->group_rank());
  // A later sum is made in the rank's own part of the buffer and added from there.
  const Tensor output = is_first ? unit.reduced : unit.whole.Slice(own.begin, own.count);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> handle,
                           group_->StartReduceScatter(unit.whole, output, ReduceOp::kSum, stream));
  unit.has_reduced = true;
  unit.is_clear = false;
  unit.reducing = queue_.Add(std::move(handle), [this, &unit, output, is_first, &stream] {
    if (!is_first) TESSERA_RETURN_IF_ERROR(Add(unit.reduced, output, unit.reduced, stream));
    if (keeps_whole()) return absl::OkStatus();
    unit.views.clear();
    unit.whole_buffer = DeviceBuffer();
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status GradientShards::FinishReduction(Stream& stream) {
  if (options_.defers_reduction) {
    for (Unit& unit : units_) {
      if (!unit.has_reduced) TESSERA_RETURN_IF_ERROR(Reduce(unit, stream));
    }
  }
  return queue_.WaitForAll();
}

absl::Status GradientShards::AllGather(int index, Stream& stream) {
  const Unit& unit = units_[index];
  return group_->AllGather(unit.reduced, unit.whole, stream);
}

}  // namespace tessera
