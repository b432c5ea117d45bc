#include "worker/zero/zero_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/model/initial_weights.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<ZeroStore>> ZeroStore::Create(std::vector<UnitSpec> units,
                                                             uint64_t init_seed, int group_size,
                                                             Device& device, Stream& stream) {
  std::unique_ptr<ZeroStore> store(new ZeroStore(std::move(units), device));
  for (const UnitSpec& spec : store->specs_) {
    TESSERA_RETURN_IF_ERROR(store->AddUnit(spec, init_seed, group_size, stream));
  }
  TESSERA_RETURN_IF_ERROR(store->ClearGradients(stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return store;
}

absl::Status ZeroStore::AddUnit(const UnitSpec& spec, uint64_t init_seed, int group_size,
                                Stream& stream) {
  Unit unit;
  unit.layout = MakeUnitLayout(spec, group_size);
  const int64_t bytes = unit.layout.size_elements * DTypeSizeBytes(DType::kFloat32);
  TESSERA_ASSIGN_OR_RETURN(
      unit.parameter_buffer,
      device_.Allocate(bytes, MemoryCategory::kParameters, absl::StrCat("unit ", spec.name)));
  TESSERA_ASSIGN_OR_RETURN(
      unit.gradient_buffer,
      device_.Allocate(bytes, MemoryCategory::kGradients, absl::StrCat("unit ", spec.name)));
  unit.parameters = unit.parameter_buffer.View(DType::kFloat32, {unit.layout.size_elements});
  unit.gradients = unit.gradient_buffer.View(DType::kFloat32, {unit.layout.size_elements});
  TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.parameters, stream));
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = spec.parameters[i];
    const ParameterSlot& slot = unit.layout.slots[i];
    auto view = [&](const Tensor& flat) {
      return flat.Slice(slot.offset_elements, slot.size_elements).Reshape(parameter.shape);
    };
    unit.parameter_tensors.push_back(view(unit.parameters));
    unit.gradient_tensors.push_back(view(unit.gradients));
    std::vector<float> values(slot.size_elements);
    FillInitialValues(parameter, init_seed, 0, absl::MakeSpan(values));
    TESSERA_RETURN_IF_ERROR(device_.CopyIn(values.data(), slot.size_elements * sizeof(float),
                                           unit.parameter_tensors.back(), stream));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());  // before values go
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
  for (Unit& unit : units_) TESSERA_RETURN_IF_ERROR(device_.SetZero(unit.gradients, stream));
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ZeroStore::Find(const std::string& name) const {
  for (size_t u = 0; u < specs_.size(); ++u) {
    for (size_t i = 0; i < specs_[u].parameters.size(); ++i) {
      if (specs_[u].parameters[i].name == name) return units_[u].parameter_tensors[i];
    }
  }
  return absl::NotFoundError(absl::StrCat("parameter \"", name, "\": no such parameter"));
}

absl::StatusOr<std::vector<float>> ZeroStore::Read(const std::string& name, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(Tensor tensor, Find(name));
  std::vector<float> values(tensor.num_elements());
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(tensor, values.data(), tensor.size_bytes(), stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return values;
}

absl::Status ZeroStore::Write(const std::string& name, const std::vector<float>& values,
                              Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(Tensor tensor, Find(name));
  if (static_cast<int64_t>(values.size()) != tensor.num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", name, "\": ", values.size(),
                                                   " values: must be ", tensor.num_elements()));
  }
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(values.data(), tensor.size_bytes(), tensor, stream));
  return stream.Synchronize();
}

}  // namespace tessera
