// A model that only generates: weights on the device, without gradients or optimizer state.
#ifndef TESSERA_WORKER_GENERATION_GENERATION_MODEL_H_
#define TESSERA_WORKER_GENERATION_GENERATION_MODEL_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/checkpoint/weight_writer.h"
#include "worker/model/generator.h"
#include "worker/model/model_config.h"
#include "worker/model/transformer.h"
#include "worker/zero/zero_store.h"

namespace tessera {

struct GenerationModelOptions {
  DType dtype = DType::kFloat32;  // of weights, activations and cache
  // Bytes of the device's arena that stay free, for others that take memory for moments.
  int64_t reserved_bytes = 0;
};

// Used by one thread at a time. The device outlives it.
class GenerationModel {
 public:
  // A copy of the weights that `source` gives (asked as in weight_writer.h), converted to dtype.
  // RESOURCE_EXHAUSTED, naming what is needed and what is free: the device has no room for them
  // beside reserved_bytes. Errors of source pass through. Nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<GenerationModel>> Create(
      const ModelConfig& config, const GenerationModelOptions& options,
      const ParameterSource& source, Device& device);

  const ModelConfig& config() const { return config_; }
  // For a sequence of at most `capacity` tokens. Errors of Generator::Create, and
  // RESOURCE_EXHAUSTED as Create. The model outlives the generator.
  absl::StatusOr<std::unique_ptr<Generator>> NewGenerator(int64_t capacity);

 private:
  GenerationModel(const ModelConfig& config, const GenerationModelOptions& options, Device& device)
      : config_(config), options_(options), device_(device) {}
  // Whether needed_bytes leave the reserved ones of what was free before.
  absl::Status CheckRoom(int64_t needed_bytes, const ArenaUsage& before) const;
  absl::Status Fill(const ParameterSource& source);

  const ModelConfig config_;
  const GenerationModelOptions options_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ZeroStore> store_;
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_GENERATION_GENERATION_MODEL_H_
