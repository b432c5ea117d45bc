// Hugging Face directories and single files as a WeightReader.
#ifndef TESSERA_WORKER_CHECKPOINT_HF_WEIGHT_READER_H_
#define TESSERA_WORKER_CHECKPOINT_HF_WEIGHT_READER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/weight_reader.h"

namespace tessera {

// folder/config.json, and the safetensors of the folder.
absl::StatusOr<std::unique_ptr<WeightReader>> OpenHfFolder(const std::string& folder);
// path, and the config.json in its folder.
absl::StatusOr<std::unique_ptr<WeightReader>> OpenHfFile(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_HF_WEIGHT_READER_H_
