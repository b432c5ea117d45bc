// A decoder-only transformer (GPT-2 or Llama): explicit forward and backward, unit by unit, over a
// ParameterStore.
//
// Legend: B sequences of T tokens, M = B*T, C channels, V token ids. Activations, weights and
// gradients have the store's element types; statistics and losses are fp32.
#ifndef TESSERA_WORKER_MODEL_TRANSFORMER_H_
#define TESSERA_WORKER_MODEL_TRANSFORMER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/embedding.h"
#include "worker/model/head.h"
#include "worker/model/model_config.h"
#include "worker/model/parameter_store.h"
#include "worker/model/transformer_block.h"

namespace tessera {

// Which layers recompute what in backward.
struct RecomputePlan {
  Recompute what = Recompute::kNone;
  int64_t first_layer = 0;
  int64_t num_layers = 0;  // from first_layer on

  Recompute of(int64_t layer) const {
    const bool in_range = layer >= first_layer && layer < first_layer + num_layers;
    return in_range ? what : Recompute::kNone;
  }
};

struct ActivationOptions {
  int64_t batch = 0;  // B
  int64_t time = 0;   // T
  // Whether Transformer::Backward will be called; if not, nothing is kept from layer to layer.
  bool backward = false;
  DType dtype = DType::kFloat32;  // the store's
  RecomputePlan recompute;
  int64_t cached = 0;  // capacity of the cache that Transformer::Decode will be called with
};

// Device memory of one micro-batch: inputs, what forward keeps, and backward's scratch. Move-only;
// the device outlives it.
struct TransformerActivations {
  // RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<TransformerActivations> Create(const ModelConfig& config,
                                                       const ActivationOptions& options,
                                                       Device& device);

  AttentionShape shape;
  RecomputePlan recompute;
  ActivationBuffers buffers;
  Tensor ids;       // (B, T) int32, filled by the caller before Forward
  Tensor targets;   // (M) int32, -1 carries no loss; filled by the caller before Loss
  Tensor embedded;  // (M, C)
  std::vector<BlockActivations> layers;
  HeadActivations head;
  BlockScratch scratch;
  Tensor d_residual;  // (M, C); null without backward

 private:
  TransformerActivations(const ActivationOptions& options, Device& device)
      : recompute(options.recompute), buffers(device, options.dtype) {}
  void AddLayers(const ModelConfig& config, bool backward);
};

// Keys and values of one sequence, for generating token by token. Move-only; the device outlives
// it.
struct KvCache {
  // Room for `capacity` tokens. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<KvCache> Create(const ModelConfig& config, int64_t capacity, DType dtype,
                                        Device& device);

  int64_t capacity = 0;
  int64_t length = 0;  // tokens so far
  std::vector<AttentionCache> layers;
  ActivationBuffers buffers;
};

// Used by one thread. The store outlives the model.
class Transformer {
 public:
  // REQUIRES: store.units() are Units(config).
  Transformer(const ModelConfig& config, ParameterStore& store);

  const ModelConfig& config() const { return config_; }
  // activations: everything up to the logits, from ids.
  absl::Status Forward(TransformerActivations& activations, Stream& stream) const;
  // head.losses =, from the logits and targets. With backward, ready for Backward: gradients are of
  // the sum of losses times gradient_scale.
  absl::Status Loss(TransformerActivations& activations, float gradient_scale, bool backward,
                    Stream& stream) const;
  // Adds (+=) to every gradient of the store and reports each unit ready, last unit first.
  absl::Status Backward(TransformerActivations& activations, Stream& stream) const;
  // As Forward for the T tokens of one sequence (B = 1) that follow those in the cache, which takes
  // them up; logits only where asked for. REQUIRES: cache.length + T <= cache.capacity.
  absl::Status Decode(TransformerActivations& activations, bool with_logits, KvCache& cache,
                      Stream& stream) const;

 private:
  int head_unit() const { return static_cast<int>(config_.layers) + 1; }
  // The head's weights or gradients; of the embedding unit, where tied, as well.
  absl::StatusOr<HeadTensors> AcquireHead(Stream& stream) const;
  absl::Status ReleaseHead(Stream& stream) const;
  absl::StatusOr<HeadTensors> AcquireHeadGradients(Stream& stream) const;
  // Embedding and layers; of the tokens after those in the cache where it is not null.
  absl::Status ForwardLayers(TransformerActivations& activations, const KvCache* cache,
                             Stream& stream) const;
  absl::Status ForwardHead(TransformerActivations& activations, Stream& stream) const;
  absl::Status BackwardHead(TransformerActivations& activations, Stream& stream) const;
  absl::Status BackwardLayer(int layer, TransformerActivations& activations, Stream& stream) const;

  const ModelConfig config_;
  ParameterStore& store_;
  const TransformerBlock block_;
  const Head head_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRANSFORMER_H_
