// Device memory of the model's activations: what one micro-batch keeps, and what all share.
//
// Legend: B sequences of T tokens (this rank's part of each, with context parallelism), M = B*T
// rows, R of them per rank in the norm regions (layout.h); C channels.
#ifndef TESSERA_WORKER_MODEL_TRANSFORMER_ACTIVATIONS_H_
#define TESSERA_WORKER_MODEL_TRANSFORMER_ACTIVATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/context_parallel/cache_attention.h"
#include "worker/context_parallel/context_attention.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/head.h"
#include "worker/model/model_config.h"
#include "worker/model/model_part.h"
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

// Host memory in which inputs of layers wait for their recomputation in backward.
struct WaitingRoom {
  Device* host = nullptr;  // a CPU device; null: they stay where they are
  // Told what moves: bytes to the host, or back from it.
  std::function<void(int64_t size_bytes, bool to_host)> on_copy;
};

struct ActivationOptions {
  int64_t batch = 0;  // B
  int64_t time = 0;   // T
  // Whether Transformer::Backward will be called; if not, nothing is kept from layer to layer.
  bool backward = false;
  // Whether the weights' gradients are computed apart, by Transformer::BackwardWeight.
  bool weights_apart = false;
  DType dtype = DType::kFloat32;  // the store's
  RecomputePlan recompute;
  WaitingRoom waiting;
  int64_t cached = 0;  // rows of the cache that Transformer::Decode will be called with
  // Of the T tokens in their sequence; empty: 0 .. T-1.
  std::vector<int32_t> positions;
  // How attention reaches the other parts of a sequence; null group: there are none.
  ContextParallelKind context_parallel = ContextParallelKind::kRing;
  Communicator* cp_group = nullptr;
};

// Shared by all micro-batches and chunks of a rank: its contents do not outlive a pass through one
// layer, or through the head. Move-only; device and groups outlive it.
struct TransformerScratch {
  // has_head: whether a chunk of this rank has the head. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<TransformerScratch> Create(const ModelConfig& config,
                                                   const TensorParallelLayout& tp, bool has_head,
                                                   const ActivationOptions& options, Device& device,
                                                   Stream& stream);

  AttentionShape shape;
  int64_t shard_rows = 0;  // R
  ActivationBuffers buffers;
  BlockScratch block;
  HeadActivations head;
  Tensor row_positions;  // int32, of the R rows; null: t
  // Outputs of layers that wait on the host pass through these, in turn; made by the first that
  // does.
  Tensor passing[2];
  // Of layers that recompute; made by the first that does.
  std::optional<AttentionActivations> shared_attention;
  std::optional<BlockActivations> shared_inner;

 private:
  TransformerScratch(const ActivationOptions& options, Device& device)
      : buffers(device, options.dtype) {}
  absl::Status AddPositions(const ModelConfig& config, const TensorParallelLayout& tp,
                            const ActivationOptions& options, Stream& stream);

  Tensor positions_;  // (T) int32; null: t
  std::unique_ptr<ContextAttention> attention_;
  std::unique_ptr<CacheAttention> cache_attention_;
};

// Of one micro-batch on its way through one chunk. Move-only; the device outlives it.
struct TransformerActivations {
  // scratch: that of the rank, made with the same options. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<TransformerActivations> Create(const ModelConfig& config,
                                                       const TensorParallelLayout& tp,
                                                       const ModelChunk& chunk,
                                                       const ActivationOptions& options,
                                                       TransformerScratch& scratch, Device& device);

  RecomputePlan recompute;
  ActivationBuffers buffers;
  Tensor ids;      // (B, T) int32, filled by the caller before Forward; null without the embedding
  Tensor targets;  // (M) int32, -1 carries no loss; filled before Loss; null without the head
  Tensor input;    // (R, C): embedded ids, or filled by the caller before Forward
  std::vector<BlockActivations> layers;
  std::vector<BlockGradients> gradients;  // of each layer, where weights_apart
  // (R, C): filled by the caller before Backward with the gradient of output(), unless the chunk
  // has the head; after it the gradient of input. Null without backward.
  Tensor d_residual;

  // Of each layer's output, its place on the host; null: it is kept on the device. Empty: all are.
  std::vector<Tensor> waiting;

  // (R, C)
  const Tensor& output() const { return layers.back().output; }
  // The layer's output goes to the host, until FetchOutput brings it back to layers[layer].output.
  // Nothing where it is kept on the device.
  absl::Status StoreOutput(int layer, Stream& stream) const;
  absl::Status FetchOutput(int layer, Stream& stream) const;

 private:
  TransformerActivations(const ActivationOptions& options, Device& device)
      : recompute(options.recompute),
        buffers(device, options.dtype),
        room_(options.waiting),
        host_buffers_(options.waiting.host != nullptr ? *options.waiting.host : device,
                      options.dtype) {}
  // Whether layer's output is kept for the recomputation of the next one alone.
  bool Waits(const ModelChunk& chunk, const ActivationOptions& options, int64_t layer) const;
  void AddLayers(const ModelConfig& local, const ModelChunk& chunk,
                 const ActivationOptions& options, TransformerScratch& scratch);

  WaitingRoom room_;
  ActivationBuffers host_buffers_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRANSFORMER_ACTIVATIONS_H_
