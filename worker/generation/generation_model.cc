#include "worker/generation/generation_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

int64_t ParameterBytes(const std::vector<UnitSpec>& units, DType dtype) {
  int64_t elements = 0;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      elements += parameter.shape.num_elements();
    }
  }
  return elements * DTypeSizeBytes(dtype);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GenerationModel>> GenerationModel::Create(
    const ModelConfig& config, const GenerationModelOptions& options, const ParameterSource& source,
    Device& device) {
  std::unique_ptr<GenerationModel> model(new GenerationModel(config, options, device));
  std::vector<UnitSpec> units = Units(config);
  TESSERA_RETURN_IF_ERROR(
      model->CheckRoom(ParameterBytes(units, options.dtype), device.arena().usage()));
  TESSERA_ASSIGN_OR_RETURN(model->stream_, device.CreateStream());
  ZeroOptions store_options;
  store_options.parameter_dtype = options.dtype;
  store_options.has_gradients = false;
  TESSERA_ASSIGN_OR_RETURN(model->store_, ZeroStore::Create(std::move(units), store_options,
                                                            nullptr, device, *model->stream_));
  TESSERA_RETURN_IF_ERROR(model->Fill(source));
  model->transformer_ = std::make_unique<Transformer>(config, *model->store_);
  return model;
}

absl::Status GenerationModel::CheckRoom(int64_t needed_bytes, const ArenaUsage& before) const {
  const int64_t free = before.capacity_bytes - before.current_bytes;
  if (needed_bytes + options_.reserved_bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(device_.name(), ": generating needs ", needed_bytes, " bytes more, of ", free,
                   " that are free and ", options_.reserved_bytes, " that stay so for others"));
}

absl::Status GenerationModel::Fill(const ParameterSource& source) {
  std::vector<float> values;
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const std::vector<ParameterSpec>& parameters = store_->units()[unit].parameters;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      const int64_t count = parameters[i].shape.num_elements();
      for (int64_t begin = 0; begin < count; begin += kMaxWritePieceElements) {
        values.resize(std::min(kMaxWritePieceElements, count - begin));
        TESSERA_RETURN_IF_ERROR(source(parameters[i].name, begin, absl::MakeSpan(values)));
        TESSERA_RETURN_IF_ERROR(store_->Write({unit, i}, begin, values, *stream_));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Generator>> GenerationModel::NewGenerator(int64_t capacity) {
  const ArenaUsage before = device_.arena().usage();
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<Generator> generator,
      Generator::Create(*transformer_, options_.dtype, capacity, device_, *stream_));
  const int64_t taken = device_.arena().usage().current_bytes - before.current_bytes;
  TESSERA_RETURN_IF_ERROR(CheckRoom(taken, before));
  return generator;
}

}  // namespace tessera
