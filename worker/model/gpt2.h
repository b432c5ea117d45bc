// GPT-2: explicit forward and backward, unit by unit, over a ParameterStore.
//
// Legend: B sequences of T tokens, M = B*T, C channels, V token ids.
#ifndef TESSERA_WORKER_MODEL_GPT2_H_
#define TESSERA_WORKER_MODEL_GPT2_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/head.h"
#include "worker/model/model_config.h"
#include "worker/model/parameter_store.h"
#include "worker/model/transformer_block.h"

namespace tessera {

// Device memory of one micro-batch: inputs, what forward keeps, and backward's scratch. Move-only;
// the device outlives it.
struct Gpt2Activations {
  explicit Gpt2Activations(Device& device) : buffers(device) {}
  // backward: whether Gpt2::Backward will be called. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<Gpt2Activations> Create(const ModelConfig& config, int64_t batch,
                                                int64_t time, bool backward, Device& device);

  AttentionShape shape;
  ActivationBuffers buffers;
  Tensor ids;       // (B, T) int32, filled by the caller before Forward
  Tensor targets;   // (M) int32, -1 carries no loss; filled by the caller before Loss
  Tensor embedded;  // (M, C)
  std::vector<BlockActivations> layers;
  HeadActivations head;
  BlockScratch scratch;
  Tensor d_residual;  // (M, C); null without backward
};

// Used by one thread. The store outlives the model.
class Gpt2 {
 public:
  // REQUIRES: store.units() are Gpt2Units(config).
  Gpt2(const ModelConfig& config, ParameterStore& store);

  const ModelConfig& config() const { return config_; }
  // activations: everything up to the logits, from ids.
  absl::Status Forward(Gpt2Activations& activations, Stream& stream) const;
  // head.losses =, from the logits and targets. With backward, ready for Backward: gradients are of
  // the sum of losses times gradient_scale.
  absl::Status Loss(Gpt2Activations& activations, float gradient_scale, bool backward,
                    Stream& stream) const;
  // Adds (+=) to every gradient of the store and reports each unit ready, last unit first.
  absl::Status Backward(Gpt2Activations& activations, Stream& stream) const;

 private:
  int head_unit() const { return static_cast<int>(config_.layers) + 1; }
  absl::Status ForwardHead(Gpt2Activations& activations, Stream& stream) const;
  absl::Status BackwardHead(Gpt2Activations& activations, Stream& stream) const;
  absl::Status BackwardLayer(int layer, Gpt2Activations& activations, Stream& stream) const;

  const ModelConfig config_;
  ParameterStore& store_;
  const TransformerBlock block_;
  const Head head_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_GPT2_H_
