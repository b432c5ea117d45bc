#include "worker/zero/gradient_shards.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise.h"
#include "kernels/status_macros.h"
#include "worker/zero/parameter_shards.h"

namespace tessera {

absl::Status GradientShards::AddUnit(const UnitSpec& spec, const UnitLayout& layout) {
  const int index = static_cast<int>(units_.size());
  Unit& unit = units_.emplace_back();
  unit.spec = &spec;
  unit.layout = layout;
  if (offload_.has(index)) {
    const bool holds_whole = !reduces_each() && options_.micro_batches > 1;
    return offload_.tier->AddUnit(index, spec.name, options_.gradient_dtype,
                                  holds_whole ? layout.size_elements : layout.shard_elements);
  }
  if (keeps_whole(index)) TESSERA_RETURN_IF_ERROR(AllocateWhole(index));
  if (keeps_whole(index) && !accumulates()) {
    const ElementRange own = own_shard(unit);
    unit.reduced = unit.whole.Slice(own.begin, own.count);
    return absl::OkStatus();
  }
  const Shape shape{layout.shard_elements};
  TESSERA_ASSIGN_OR_RETURN(
      unit.reduced_buffer,
      device_.Allocate(shape.num_elements() * DTypeSizeBytes(options_.gradient_dtype),
                       MemoryCategory::kGradients, absl::StrCat("unit ", spec.name)));
  unit.reduced = unit.reduced_buffer.View(options_.gradient_dtype, shape);
  return absl::OkStatus();
}

absl::Status GradientShards::AllocateWhole(int index) {
  Unit& unit = units_[index];
  const Shape shape{unit.layout.size_elements};
  TESSERA_ASSIGN_OR_RETURN(
      unit.whole_buffer,
      device_.Allocate(
          shape.num_elements() * DTypeSizeBytes(options_.gradient_dtype),
          keeps_whole(index) ? MemoryCategory::kGradients : MemoryCategory::kCommunication,
          absl::StrCat(keeps_whole(index) ? "unit " : "whole gradients of unit ",
                       unit.spec->name)));
  unit.whole = unit.whole_buffer.View(options_.gradient_dtype, shape);
  unit.views = ParameterViews(*unit.spec, unit.layout, unit.whole);
  unit.is_clear = false;
  return absl::OkStatus();
}

void GradientShards::FreeWhole(Unit& unit) {
  unit.views.clear();
  unit.whole = Tensor();
  unit.whole_buffer = DeviceBuffer();
}

absl::Status GradientShards::AllocateTransient(const Unit& unit, int64_t elements,
                                               DeviceBuffer& buffer, Tensor& tensor) {
  TESSERA_ASSIGN_OR_RETURN(
      buffer, device_.Allocate(elements * DTypeSizeBytes(options_.gradient_dtype),
                               MemoryCategory::kCommunication,
                               absl::StrCat("offloaded gradients of unit ", unit.spec->name)));
  tensor = buffer.View(options_.gradient_dtype, {elements});
  return absl::OkStatus();
}

absl::Status GradientShards::Fetch(int index, const Tensor& to, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(offload_.tier->StartFetch(index, to, stream));
  return offload_.tier->FinishFetch(index);
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
  if (unit.views.empty()) {
    TESSERA_RETURN_IF_ERROR(AllocateWhole(index));
    // What earlier micro-batches have added.
    if (offload_.has(index) && !reduces_each() && unit.ready > 0) {
      TESSERA_RETURN_IF_ERROR(Fetch(index, unit.whole, stream));
      unit.is_clear = true;
    }
  }
  if (!unit.is_clear) TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.whole, stream));
  unit.is_clear = true;
  return absl::MakeConstSpan(unit.views);
}

absl::Status GradientShards::Ready(int index, Stream& stream) {
  Unit& unit = units_[index];
  ++unit.ready;
  if (!reduces_each() && unit.ready < options_.micro_batches) {
    if (!offload_.has(index)) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(offload_.tier->Store(index, unit.whole, stream));
    FreeWhole(unit);
    return absl::OkStatus();
  }
  if (before_reduction_) TESSERA_RETURN_IF_ERROR(before_reduction_(index));
  return options_.defers_reduction ? absl::OkStatus() : Reduce(index, stream);
}

absl::Status GradientShards::Reduce(int index, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(queue_.WaitForAll());  // one pending reduction is enough
  Unit& unit = units_[index];
  const bool is_first = !unit.has_reduced;
  const ElementRange own = own_shard(unit);
  // A later sum, and one that is offloaded, is made in the rank's own part of the buffer and goes
  // on from there.
  const Tensor output =
      is_first && !offload_.has(index) ? unit.reduced : unit.whole.Slice(own.begin, own.count);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> handle,
                           group_->StartReduceScatter(unit.whole, output, ReduceOp::kSum, stream));
  unit.has_reduced = true;
  unit.is_clear = false;
  unit.reducing = queue_.Add(std::move(handle), [this, index, output, is_first, &stream] {
    return FinishReduce(index, is_first, output, stream);
  });
  return absl::OkStatus();
}

absl::Status GradientShards::FinishReduce(int index, bool is_first, const Tensor& output,
                                          Stream& stream) {
  Unit& unit = units_[index];
  if (offload_.has(index)) {
    if (!is_first) TESSERA_RETURN_IF_ERROR(AddToOffloaded(index, output, stream));
    TESSERA_RETURN_IF_ERROR(offload_.tier->Store(index, output, stream));
  } else if (!is_first) {
    TESSERA_RETURN_IF_ERROR(Add(unit.reduced, output, unit.reduced, stream));
  }
  if (!keeps_whole(index)) FreeWhole(unit);
  return absl::OkStatus();
}

absl::Status GradientShards::AddToOffloaded(int index, const Tensor& sum, Stream& stream) {
  DeviceBuffer buffer;
  Tensor before;
  TESSERA_RETURN_IF_ERROR(AllocateTransient(units_[index], sum.num_elements(), buffer, before));
  TESSERA_RETURN_IF_ERROR(Fetch(index, before, stream));
  TESSERA_RETURN_IF_ERROR(Add(before, sum, sum, stream));
  return stream.Synchronize();
}

absl::Status GradientShards::FinishReduction(Stream& stream) {
  if (options_.defers_reduction) {
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      if (!units_[unit].has_reduced) TESSERA_RETURN_IF_ERROR(Reduce(unit, stream));
    }
  }
  return queue_.WaitForAll();
}

absl::StatusOr<Tensor> GradientShards::AcquireReduced(int index, Stream& stream) {
  Unit& unit = units_[index];
  if (!offload_.has(index)) return unit.reduced;
  TESSERA_RETURN_IF_ERROR(
      AllocateTransient(unit, unit.layout.shard_elements, unit.reduced_buffer, unit.reduced));
  TESSERA_RETURN_IF_ERROR(Fetch(index, unit.reduced, stream));
  return unit.reduced;
}

absl::Status GradientShards::ReleaseReduced(int index, bool is_changed, Stream& stream) {
  if (!offload_.has(index)) return absl::OkStatus();
  Unit& unit = units_[index];
  if (is_changed) TESSERA_RETURN_IF_ERROR(offload_.tier->Store(index, unit.reduced, stream));
  unit.reduced = Tensor();
  unit.reduced_buffer = DeviceBuffer();
  return absl::OkStatus();
}

absl::StatusOr<Tensor> GradientShards::AcquireWholeSum(int index, Stream& stream) {
  Unit& unit = units_[index];
  Tensor own = unit.reduced;
  if (offload_.has(index)) {
    TESSERA_RETURN_IF_ERROR(
        AllocateTransient(unit, unit.layout.size_elements, unit.whole_buffer, unit.whole));
    const ElementRange shard = own_shard(unit);
    own = unit.whole.Slice(shard.begin, shard.count);
    TESSERA_RETURN_IF_ERROR(Fetch(index, own, stream));
  }
  TESSERA_RETURN_IF_ERROR(group_->AllGather(own, unit.whole, stream));
  return unit.whole;
}

void GradientShards::ReleaseWholeSum(int index) {
  if (offload_.has(index)) FreeWhole(units_[index]);
}

}  // namespace tessera
