#include "worker/zero/zero_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

// A flat buffer's parts, in the shapes of the unit's parameters.
std::vector<Tensor> MakeViews(const UnitSpec& spec, const UnitLayout& layout, const Tensor& flat) {
  std::vector<Tensor> views;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSlot& slot = layout.slots[i];
    views.push_back(flat.Slice(slot.offset_elements, slot.size_elements)
                        .Reshape(spec.parameters[i].local_shape));
  }
  return views;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZeroStore>> ZeroStore::Create(std::vector<UnitSpec> units,
                                                             const ZeroStoreOptions& options,
                                                             Device& device, Stream& stream) {
  std::unique_ptr<ZeroStore> store(new ZeroStore(std::move(units), options, device));
  for (const UnitSpec& spec : store->specs_) {
    TESSERA_RETURN_IF_ERROR(store->AddUnit(spec, stream));
  }
  TESSERA_RETURN_IF_ERROR(store->ClearGradients(stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return store;
}

absl::Status ZeroStore::AddUnit(const UnitSpec& spec, Stream& stream) {
  Unit unit;
  unit.layout = MakeUnitLayout(spec, options_.group_size);
  const Shape shape{unit.layout.size_elements};
  auto allocate = [&](DType dtype, MemoryCategory category) {
    return device_.Allocate(shape.num_elements() * DTypeSizeBytes(dtype), category,
                            absl::StrCat("unit ", spec.name));
  };
  TESSERA_ASSIGN_OR_RETURN(unit.parameter_buffer,
                           allocate(options_.parameter_dtype, MemoryCategory::kParameters));
  unit.parameters = unit.parameter_buffer.View(options_.parameter_dtype, shape);
  unit.parameter_tensors = MakeViews(spec, unit.layout, unit.parameters);
  TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.parameters, stream));
  if (options_.has_gradients) {
    TESSERA_ASSIGN_OR_RETURN(unit.gradient_buffer,
                             allocate(options_.gradient_dtype, MemoryCategory::kGradients));
    unit.gradients = unit.gradient_buffer.View(options_.gradient_dtype, shape);
    unit.gradient_tensors = MakeViews(spec, unit.layout, unit.gradients);
  }
  units_.push_back(std::move(unit));
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const Tensor>> ZeroStore::AcquireParameters(int unit, Stream&) {
  return absl::MakeConstSpan(units_[unit].parameter_tensors);
}

absl::Status ZeroStore::ReleaseParameters(int, Stream&) { return absl::OkStatus(); }

absl::Status ZeroStore::PrefetchParameters(int, Stream&) { return absl::OkStatus(); }

absl::StatusOr<absl::Span<const Tensor>> ZeroStore::AcquireGradients(int unit, Stream&) {
  return absl::MakeConstSpan(units_[unit].gradient_tensors);
}

absl::Status ZeroStore::GradientsReady(int, Stream&) { return absl::OkStatus(); }

absl::Status ZeroStore::ClearGradients(Stream& stream) {
  if (!options_.has_gradients) return absl::OkStatus();
  for (Unit& unit : units_) TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.gradients, stream));
  return absl::OkStatus();
}

absl::StatusOr<ParameterId> ZeroStore::Find(const std::string& name) const {
  for (size_t u = 0; u < specs_.size(); ++u) {
    for (size_t i = 0; i < specs_[u].parameters.size(); ++i) {
      if (specs_[u].parameters[i].name == name) {
        return ParameterId{static_cast<int>(u), static_cast<int>(i)};
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("parameter \"", name, "\": no such parameter"));
}

absl::Status ZeroStore::Write(ParameterId id, int64_t begin, absl::Span<const float> values,
                              Stream& stream) {
  const Unit& unit = units_[id.unit];
  const int64_t offset = unit.layout.slots[id.index].offset_elements + begin;
  return CopyInFp32(values, unit.parameters.Slice(offset, values.size()), stream);
}

}  // namespace tessera
