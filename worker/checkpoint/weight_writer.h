// Writes weights for others: a Hugging Face directory.
#ifndef TESSERA_WORKER_CHECKPOINT_WEIGHT_WRITER_H_
#define TESSERA_WORKER_CHECKPOINT_WEIGHT_WRITER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "storage/sharded_safetensors_writer.h"
#include "worker/checkpoint/hf_config.h"

namespace tessera {

// Fills values with the elements of a parameter (worker/model/units.h) from offset_elements on.
// Asked for each element once, parameters in forward order, in pieces of at most
// kMaxWritePieceElements.
using ParameterSource = std::function<absl::Status(absl::string_view name, int64_t offset_elements,
                                                   absl::Span<float> values)>;
inline constexpr int64_t kMaxWritePieceElements = 1 << 20;

struct HfWriteOptions {
  DType dtype = DType::kFloat32;  // or kBFloat16, kFloat16
  int64_t max_shard_bytes = kDefaultMaxShardBytes;
};

// Which tensor is where: for those that write a checkpoint together. INVALID_ARGUMENT: the config
// or an option.
absl::StatusOr<SafetensorsShardPlan> PlanHfWeights(const ModelConfig& config,
                                                   const HfWriteOptions& options);

// folder/config.json and safetensors, config.json last. The folder is made if it is missing.
// ALREADY_EXISTS: it has a config.json or weights. INVALID_ARGUMENT: the config or an option.
// OUT_OF_RANGE: a value beyond the dtype. Errors of source and of the system name the tensor or
// file; after an error no file is there under its final name, but for shards without an index.
absl::Status WriteHfFolder(const std::string& folder, const HfConfig& config,
                           const HfWriteOptions& options, const ParameterSource& source);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_WEIGHT_WRITER_H_
