#include "worker/checkpoint/weight_reader.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "storage/mapped_file.h"
#include "worker/checkpoint/hf_weight_reader.h"
#include "worker/checkpoint/llmc_checkpoint.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<WeightReader>> OpenWeights(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return OpenHfFolder(path);
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat(path, ": ", file.status().message()));
  }
  if (IsLlmcCheckpoint(file->bytes())) return OpenLlmcCheckpoint(path);
  return OpenHfFile(path);
}

}  // namespace tessera
