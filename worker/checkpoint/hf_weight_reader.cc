#include "worker/checkpoint/hf_weight_reader.h"

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/mapped_file.h"
#include "storage/sharded_safetensors.h"
#include "worker/checkpoint/float_type.h"
#include "worker/checkpoint/hf_names.h"

namespace tessera {
namespace {

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

std::optional<DType> FloatType(SafetensorsDType dtype) {
  switch (dtype) {
    case SafetensorsDType::kF32:
      return DType::kFloat32;
    case SafetensorsDType::kBF16:
      return DType::kBFloat16;
    case SafetensorsDType::kF16:
      return DType::kFloat16;
    default:
      return std::nullopt;
  }
}

struct StoredParameter {
  ShardedSafetensors::Entry entry;
  DType dtype;
  int64_t size_elements;
};

class HfWeightReader : public WeightReader {
 public:
  HfWeightReader(HfConfig config, ShardedSafetensors tensors,
                 std::map<std::string, StoredParameter, std::less<>> stored)
      : config_(std::move(config)),
        parameters_(ParametersOf(config_.model)),
        tensors_(std::move(tensors)),
        stored_(std::move(stored)) {}

  const HfConfig& config() const override { return config_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  absl::Status ReadParameter(absl::string_view name, int64_t offset_elements,
                             absl::Span<float> values) const override {
    const auto it = stored_.find(name);
    if (it == stored_.end()) {
      return absl::NotFoundError(absl::StrCat("the model has no parameter ", name));
    }
    const StoredParameter& stored = it->second;
    const auto count = static_cast<int64_t>(values.size());
    if (offset_elements < 0 || count > stored.size_elements - offset_elements) {
      return absl::OutOfRangeError(absl::StrCat(stored.entry.file->path(), ": ", name, ": ", count,
                                                " elements at ", offset_elements,
                                                " reach beyond its ", stored.size_elements));
    }
    const int64_t item = DTypeSizeBytes(stored.dtype);
    DecodeFloats(stored.dtype,
                 tensors_.bytes(stored.entry).subspan(offset_elements * item, count * item),
                 values);
    return absl::OkStatus();
  }

 private:
  const HfConfig config_;
  const std::vector<ParameterSpec> parameters_;
  const ShardedSafetensors tensors_;
  const std::map<std::string, StoredParameter, std::less<>> stored_;
};

absl::StatusOr<HfConfig> ReadConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kHfConfigFileName);
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return WithPath(path, file.status());
  absl::StatusOr<HfConfig> config = ParseHfConfig(
      absl::string_view(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()));
  if (!config.ok()) return WithPath(path, config.status());
  return config;
}

// A head that is stored although it is tied says the same as the embedding.
absl::Status CheckTiedHead(const ModelConfig& model, const HfBinding& binding,
                           const ShardedSafetensors& tensors) {
  if (binding.tied_head.empty()) return absl::OkStatus();
  const std::string embedding =
      model.family == ModelFamily::kGpt2 ? "wte.weight" : "model.embed_tokens.weight";
  const ShardedSafetensors::Entry& head = tensors.tensors().at(binding.tied_head);
  const ShardedSafetensors::Entry& tied = tensors.tensors().at(binding.tensor_of.at(embedding));
  if (head.tensor->dtype != tied.tensor->dtype || tensors.bytes(head) != tensors.bytes(tied)) {
    return absl::InvalidArgumentError(
        absl::StrCat(head.file->path(), ": tensor ", binding.tied_head, ": differs from ",
                     tied.tensor->name, ", but the config ties them (tie_word_embeddings)"));
  }
  return absl::OkStatus();
}

// where: what errors about all tensors together name.
absl::StatusOr<std::unique_ptr<WeightReader>> MakeReader(HfConfig config,
                                                         ShardedSafetensors tensors,
                                                         const std::string& where) {
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const auto& [name, entry] : tensors.tensors()) shapes.emplace(name, entry.tensor->shape);
  const absl::StatusOr<HfBinding> binding = BindHfTensors(config.model, shapes);
  if (!binding.ok()) return WithPath(where, binding.status());
  TESSERA_RETURN_IF_ERROR(CheckTiedHead(config.model, *binding, tensors));
  std::map<std::string, StoredParameter, std::less<>> stored;
  for (const ParameterSpec& parameter : ParametersOf(config.model)) {
    const ShardedSafetensors::Entry& entry =
        tensors.tensors().at(binding->tensor_of.at(parameter.name));
    const std::optional<DType> dtype = FloatType(entry.tensor->dtype);
    if (!dtype) {
      return absl::UnimplementedError(absl::StrCat(
          entry.file->path(), ": tensor ", entry.tensor->name, ": dtype ",
          SafetensorsDTypeName(entry.tensor->dtype), ": not supported (F32, BF16, F16)"));
    }
    stored.emplace(parameter.name, StoredParameter{entry, *dtype, parameter.shape.num_elements()});
  }
  return std::make_unique<HfWeightReader>(std::move(config), std::move(tensors), std::move(stored));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightReader>> OpenHfFolder(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(HfConfig config, ReadConfig(folder));
  TESSERA_ASSIGN_OR_RETURN(ShardedSafetensors tensors, ShardedSafetensors::OpenFolder(folder));
  return MakeReader(std::move(config), std::move(tensors), folder);
}

absl::StatusOr<std::unique_ptr<WeightReader>> OpenHfFile(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  TESSERA_ASSIGN_OR_RETURN(ShardedSafetensors tensors, ShardedSafetensors::OpenFile(path));
  TESSERA_ASSIGN_OR_RETURN(HfConfig config, ReadConfig(parent.empty() ? "." : parent.string()));
  return MakeReader(std::move(config), std::move(tensors), path);
}

}  // namespace tessera
