#include "worker/checkpoint/weight_writer.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/output_file.h"
#include "worker/checkpoint/float_type.h"
#include "worker/checkpoint/hf_names.h"

namespace tessera {
namespace {

absl::StatusOr<SafetensorsDType> FileType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return SafetensorsDType::kF32;
    case DType::kBFloat16:
      return SafetensorsDType::kBF16;
    case DType::kFloat16:
      return SafetensorsDType::kF16;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("dtype: ", DTypeName(dtype), ": must be float32, bfloat16 or float16"));
  }
}

absl::Status WriteParameter(const ParameterSpec& parameter, const std::string& tensor, DType dtype,
                            const ParameterSource& source, ShardedSafetensorsWriter& writer) {
  const int64_t size = parameter.shape.num_elements(), item = DTypeSizeBytes(dtype);
  std::vector<float> values;
  std::vector<uint8_t> bytes;
  for (int64_t begin = 0; begin < size; begin += kMaxWritePieceElements) {
    values.resize(std::min(kMaxWritePieceElements, size - begin));
    bytes.resize(values.size() * item);
    TESSERA_RETURN_IF_ERROR(source(parameter.name, begin, absl::MakeSpan(values)));
    if (absl::Status status = EncodeFloats(dtype, values, absl::MakeSpan(bytes)); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("tensor ", tensor, " from element ", begin,
                                                      " on: ", status.message()));
    }
    TESSERA_RETURN_IF_ERROR(writer.Write(tensor, begin * item, bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsShardPlan> PlanHfWeights(const ModelConfig& config,
                                                   const HfWriteOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckModelConfig(config));
  TESSERA_ASSIGN_OR_RETURN(const SafetensorsDType dtype, FileType(options.dtype));
  std::vector<SafetensorsSpec> specs;
  for (const ParameterSpec& parameter : ParametersOf(config)) {
    specs.push_back(
        {HfTensorName(config.family, parameter.name), dtype, ShapeDims(parameter.shape)});
  }
  // transformers refuses a file that does not say so.
  return PlanSafetensorsShards(specs, {{"format", "pt"}}, options.max_shard_bytes);
}

absl::Status WriteHfFolder(const std::string& folder, const HfConfig& config,
                           const HfWriteOptions& options, const ParameterSource& source) {
  TESSERA_ASSIGN_OR_RETURN(SafetensorsShardPlan plan, PlanHfWeights(config.model, options));
  TESSERA_ASSIGN_OR_RETURN(const std::string json,
                           FormatHfConfig(config, DTypeName(options.dtype)));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat(folder, ": cannot be created: ", error.message()));
  }
  const std::string config_path = absl::StrCat(folder, "/", kHfConfigFileName);
  if (std::filesystem::exists(config_path, error)) {
    return absl::AlreadyExistsError(absl::StrCat(config_path, ": the folder has a model already"));
  }
  TESSERA_ASSIGN_OR_RETURN(ShardedSafetensorsWriter writer,
                           ShardedSafetensorsWriter::Create(folder, std::move(plan)));
  for (const ParameterSpec& parameter : ParametersOf(config.model)) {
    TESSERA_RETURN_IF_ERROR(WriteParameter(parameter,
                                           HfTensorName(config.model.family, parameter.name),
                                           options.dtype, source, writer));
  }
  TESSERA_RETURN_IF_ERROR(writer.Commit());
  return WriteWholeFile(config_path, json);
}

}  // namespace tessera
