// A decoder-only transformer (GPT-2 or Llama), or a chunk of its layers as one rank holds them:
// explicit forward and backward, unit by unit, over a ParameterStore.
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
#include "worker/model/embedding.h"
#include "worker/model/head.h"
#include "worker/model/kv_cache.h"
#include "worker/model/model_config.h"
#include "worker/model/model_part.h"
#include "worker/model/parameter_store.h"
#include "worker/model/transformer_activations.h"
#include "worker/model/transformer_block.h"
#include "worker/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Used by one thread. The store and tp's group outlive the model.
class Transformer {
 public:
  // The whole model on one rank. REQUIRES: store.units() are Units(config).
  Transformer(const ModelConfig& config, ParameterStore& store);
  // One chunk of this rank's. REQUIRES: store.units() are LocalUnits(config, part).
  Transformer(const ModelConfig& config, const ModelPart& part, int chunk, ParameterStore& store,
              const TensorParallel& tp);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelConfig& config() const { return config_; }  // the whole model's
  const ModelChunk& chunk() const { return chunk_; }
  const TensorParallel& tp() const { return tp_; }
  // activations.input and layers, from ids or from the input that the caller has filled.
  absl::Status Forward(TransformerActivations& activations, TransformerScratch& scratch,
                       Stream& stream) const;
  // scratch.head's logits, after Forward. backward: Backward follows, and the head's weights stay
  // acquired until then. REQUIRES: the chunk has the head.
  absl::Status ForwardHead(TransformerActivations& activations, TransformerScratch& scratch,
                           bool backward, Stream& stream) const;
  // scratch.head's losses =, from logits and targets, after ForwardHead. With backward, ready for
  // Backward: gradients are of the sum of losses times gradient_scale.
  absl::Status Loss(TransformerActivations& activations, TransformerScratch& scratch,
                    float gradient_scale, bool backward, Stream& stream) const;
  // Adds (+=) to every gradient of the chunk and reports each unit ready, last unit first; with
  // options.weights_apart without the layers' matrices and their biases. After Loss where the
  // chunk has the head, with no other pass through the head between.
  absl::Status Backward(TransformerActivations& activations, TransformerScratch& scratch,
                        Stream& stream) const;
  // The rest, after Backward. REQUIRES: options.weights_apart.
  absl::Status BackwardWeight(TransformerActivations& activations, TransformerScratch& scratch,
                              Stream& stream) const;
  // As Forward for the T tokens of one sequence (B = 1) that follow those in the cache, of whose
  // layers those from first_cached on are this chunk's. The caller advances the cache when all
  // chunks are through. REQUIRES: room for them in the cache.
  absl::Status Decode(TransformerActivations& activations, TransformerScratch& scratch,
                      const KvCache& cache, int64_t first_cached, Stream& stream) const;

 private:
  int LayerUnit(int layer) const { return units_.first_layer + layer; }
  // Whether the head's matrix is the embedding unit's, here.
  bool shares_embedding() const { return config_.tie_word_embeddings && units_.embedding >= 0; }
  // Hints of the layers that follow in forward and in backward, `layer` (of the chunk) first.
  absl::Status PrefetchLayersFrom(int layer, Stream& stream) const;
  absl::Status PrefetchLayersBackFrom(int layer, Stream& stream) const;
  // The head's weights or gradients; of the embedding unit, where shared, as well.
  absl::StatusOr<HeadTensors> AcquireHead(Stream& stream) const;
  absl::Status ReleaseHead(Stream& stream) const;
  absl::StatusOr<HeadTensors> AcquireHeadGradients(Stream& stream) const;
  absl::Status ForwardEmbedding(int64_t first_position, TransformerActivations& activations,
                                TransformerScratch& scratch, Stream& stream) const;
  // With a cache, of the tokens after those in it.
  absl::Status ForwardLayers(TransformerActivations& activations, TransformerScratch& scratch,
                             const KvCache* cache, int64_t first_cached, Stream& stream) const;
  absl::Status BackwardHead(TransformerActivations& activations, TransformerScratch& scratch,
                            Stream& stream) const;
  absl::Status BackwardLayer(int layer, TransformerActivations& activations,
                             TransformerScratch& scratch, Stream& stream) const;
  absl::Status BackwardEmbedding(TransformerActivations& activations, TransformerScratch& scratch,
                                 Stream& stream) const;

  const ModelConfig config_;
  const ModelChunk chunk_;
  const ChunkUnits units_;
  ParameterStore& store_;
  const TensorParallel tp_;
  const Embedding embedding_;
  const TransformerBlock block_;
  const Head head_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRANSFORMER_H_
