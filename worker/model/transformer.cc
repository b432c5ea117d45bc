#include "worker/model/transformer.h"

#include <optional>
#include <utility>
#include <vector>

#include "kernels/status_macros.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

// embedding: the embedding unit, where the head's matrix is there.
HeadTensors MakeHeadTensors(const ModelConfig& config, absl::Span<const Tensor> head,
                            absl::Span<const Tensor> embedding) {
  HeadTensors tensors;
  Tensor copy;  // of the tied embedding, which is on another rank
  if (config.tie_word_embeddings && embedding.empty()) {
    copy = head.front();
    head.remove_prefix(1);
  }
  const bool is_llama = config.family == ModelFamily::kLlama;
  if (is_llama) {
    tensors.norm = {head[kLlamaFinalNorm], Tensor()};
  } else {
    tensors.norm = {head[kFinalNormWeight], head[kFinalNormBias]};
  }
  if (!embedding.empty()) {
    tensors.tokens = EmbeddingTensors::FromUnit(embedding).tokens;
  } else if (config.tie_word_embeddings) {
    tensors.tokens = copy;
  } else {
    tensors.tokens = is_llama ? head[kLlamaHeadWeight] : head[kGpt2HeadWeight];
  }
  return tensors;
}

const Tensor& LayerInput(const TransformerActivations& activations, int layer) {
  return layer == 0 ? activations.input : activations.layers[layer - 1].output;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, ParameterStore& store)
    : Transformer(config, ModelPart::Whole(config), 0, store, TensorParallel()) {}

Transformer::Transformer(const ModelConfig& config, const ModelPart& part, int chunk,
                         ParameterStore& store, const TensorParallel& tp)
    : config_(config),
      chunk_(part.chunks[chunk]),
      units_(UnitsOfChunk(part, chunk)),
      store_(store),
      tp_(tp),
      embedding_(config.vocab_size, tp_),
      block_(config),
      head_(config, tp_) {}

absl::StatusOr<HeadTensors> Transformer::AcquireHead(Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> head,
                           store_.AcquireParameters(units_.head, stream));
  if (!shares_embedding()) return MakeHeadTensors(config_, head, {});
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(units_.embedding, stream));
  return MakeHeadTensors(config_, head, embedding);
}

absl::Status Transformer::ReleaseHead(Stream& stream) const {
  if (shares_embedding()) {
    TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(units_.embedding, stream));
  }
  return store_.ReleaseParameters(units_.head, stream);
}

absl::StatusOr<HeadTensors> Transformer::AcquireHeadGradients(Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> head,
                           store_.AcquireGradients(units_.head, stream));
  if (!shares_embedding()) return MakeHeadTensors(config_, head, {});
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireGradients(units_.embedding, stream));
  return MakeHeadTensors(config_, head, embedding);
}

absl::Status Transformer::PrefetchLayersFrom(int layer, Stream& stream) const {
  std::vector<int> units;
  for (int i = layer; i < chunk_.layers; ++i) units.push_back(LayerUnit(i));
  return store_.PrefetchParameters(units, stream);
}

absl::Status Transformer::PrefetchLayersBackFrom(int layer, Stream& stream) const {
  std::vector<int> units;
  for (int i = layer; i >= 0; --i) units.push_back(LayerUnit(i));
  return store_.PrefetchParameters(units, stream);
}

absl::Status Transformer::Forward(TransformerActivations& activations, TransformerScratch& scratch,
                                  Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(ForwardEmbedding(0, activations, scratch, stream));
  return ForwardLayers(activations, scratch, nullptr, 0, stream);
}

absl::Status Transformer::Decode(TransformerActivations& activations, TransformerScratch& scratch,
                                 const KvCache& cache, int64_t first_cached, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(
      FillRotaryTable(config_, cache.length(), Tensor(), scratch.block.attention, stream));
  TESSERA_RETURN_IF_ERROR(ForwardEmbedding(cache.length(), activations, scratch, stream));
  return ForwardLayers(activations, scratch, &cache, first_cached, stream);
}

absl::Status Transformer::ForwardEmbedding(int64_t first_position,
                                           TransformerActivations& activations,
                                           TransformerScratch& scratch, Stream& stream) const {
  if (units_.embedding < 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(units_.embedding, stream));
  TESSERA_RETURN_IF_ERROR(PrefetchLayersFrom(0, stream));
  TESSERA_RETURN_IF_ERROR(embedding_.Forward(activations.ids, first_position, scratch.row_positions,
                                             EmbeddingTensors::FromUnit(embedding),
                                             scratch.block.parallel, activations.input, stream));
  return store_.ReleaseParameters(units_.embedding, stream);
}

absl::Status Transformer::ForwardLayers(TransformerActivations& activations,
                                        TransformerScratch& scratch, const KvCache* cache,
                                        int64_t first_cached, Stream& stream) const {
  const BlockContext context{scratch.shape, scratch.block, tp_};
  for (int i = 0; i < chunk_.layers; ++i) {
    const int unit = LayerUnit(i);
    TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> layer,
                             store_.AcquireParameters(unit, stream));
    TESSERA_RETURN_IF_ERROR(PrefetchLayersFrom(i + 1, stream));
    std::optional<CachedTokens> cached;
    if (cache != nullptr) {
      cached =
          CachedTokens{cache->layer(first_cached + i), cache->own_length(), cache->owns_next()};
    }
    TESSERA_RETURN_IF_ERROR(
        block_.Forward(context, LayerInput(activations, i), BlockTensors::FromUnit(config_, layer),
                       activations.layers[i], cached ? &*cached : nullptr, stream));
    TESSERA_RETURN_IF_ERROR(activations.StoreOutput(i, stream));
    TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(unit, stream));
  }
  return absl::OkStatus();
}

absl::Status Transformer::ForwardHead(TransformerActivations& activations,
                                      TransformerScratch& scratch, bool backward,
                                      Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(const HeadTensors parameters, AcquireHead(stream));
  TESSERA_RETURN_IF_ERROR(head_.Forward(activations.output(), parameters, scratch.head,
                                        scratch.block.parallel, stream));
  return backward ? absl::OkStatus() : ReleaseHead(stream);
}

absl::Status Transformer::Loss(TransformerActivations& activations, TransformerScratch& scratch,
                               float gradient_scale, bool backward, Stream& stream) const {
  return head_.Loss(activations.targets, gradient_scale, backward, scratch.head, stream);
}

absl::Status Transformer::Backward(TransformerActivations& activations, TransformerScratch& scratch,
                                   Stream& stream) const {
  if (units_.head >= 0) TESSERA_RETURN_IF_ERROR(BackwardHead(activations, scratch, stream));
  for (int i = static_cast<int>(chunk_.layers) - 1; i >= 0; --i) {
    TESSERA_RETURN_IF_ERROR(BackwardLayer(i, activations, scratch, stream));
  }
  if (units_.embedding < 0) return absl::OkStatus();
  return BackwardEmbedding(activations, scratch, stream);
}

absl::Status Transformer::BackwardHead(TransformerActivations& activations,
                                       TransformerScratch& scratch, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(const HeadTensors parameters, AcquireHead(stream));
  TESSERA_RETURN_IF_ERROR(PrefetchLayersBackFrom(static_cast<int>(chunk_.layers) - 1, stream));
  TESSERA_ASSIGN_OR_RETURN(const HeadTensors gradients, AcquireHeadGradients(stream));
  TESSERA_RETURN_IF_ERROR(head_.Backward(activations.output(), parameters, scratch.head,
                                         scratch.block.parallel, scratch.block.d_branch,
                                         activations.d_residual, gradients, stream));
  TESSERA_RETURN_IF_ERROR(ReleaseHead(stream));
  TESSERA_RETURN_IF_ERROR(ReleaseHead(stream));  // what ForwardHead has kept
  return store_.GradientsReady(units_.head, stream);
}

absl::Status Transformer::BackwardLayer(int layer, TransformerActivations& activations,
                                        TransformerScratch& scratch, Stream& stream) const {
  const int unit = LayerUnit(layer);
  const bool weights_at_once = activations.gradients.empty();
  const Tensor& input = LayerInput(activations, layer);
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> unit_parameters,
                           store_.AcquireParameters(unit, stream));
  TESSERA_RETURN_IF_ERROR(PrefetchLayersBackFrom(layer - 1, stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                           store_.AcquireGradients(unit, stream));
  if (layer > 0) TESSERA_RETURN_IF_ERROR(activations.FetchOutput(layer - 1, stream));
  const BlockContext context{scratch.shape, scratch.block, tp_};
  const BlockTensors parameters = BlockTensors::FromUnit(config_, unit_parameters);
  TESSERA_RETURN_IF_ERROR(block_.Restore(activations.recompute.of(chunk_.first_layer + layer),
                                         context, input, parameters, activations.layers[layer],
                                         stream));
  TESSERA_RETURN_IF_ERROR(block_.Backward(
      context, input, parameters, activations.layers[layer],
      weights_at_once ? scratch.block.gradients : activations.gradients[layer],
      activations.d_residual, weights_at_once, BlockTensors::FromUnit(config_, gradients), stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(unit, stream));
  return weights_at_once ? store_.GradientsReady(unit, stream) : absl::OkStatus();
}

absl::Status Transformer::BackwardWeight(TransformerActivations& activations,
                                         TransformerScratch& scratch, Stream& stream) const {
  const BlockContext context{scratch.shape, scratch.block, tp_};
  for (int i = static_cast<int>(chunk_.layers) - 1; i >= 0; --i) {
    const int unit = LayerUnit(i);
    const BlockActivations& layer = activations.layers[i];
    const Recompute what = activations.recompute.of(chunk_.first_layer + i);
    TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                             store_.AcquireGradients(unit, stream));
    if (what != Recompute::kNone) {
      // What other layers and micro-batches have written since.
      if (i > 0) TESSERA_RETURN_IF_ERROR(activations.FetchOutput(i - 1, stream));
      TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> parameters,
                               store_.AcquireParameters(unit, stream));
      TESSERA_RETURN_IF_ERROR(block_.Restore(what, context, LayerInput(activations, i),
                                             BlockTensors::FromUnit(config_, parameters), layer,
                                             stream));
      TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(unit, stream));
    }
    TESSERA_RETURN_IF_ERROR(block_.BackwardWeight(context, layer, activations.gradients[i],
                                                  BlockTensors::FromUnit(config_, gradients),
                                                  stream));
    TESSERA_RETURN_IF_ERROR(store_.GradientsReady(unit, stream));
  }
  return absl::OkStatus();
}

absl::Status Transformer::BackwardEmbedding(TransformerActivations& activations,
                                            TransformerScratch& scratch, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                           store_.AcquireGradients(units_.embedding, stream));
  TESSERA_RETURN_IF_ERROR(embedding_.Backward(activations.ids, scratch.row_positions,
                                              activations.d_residual, scratch.block.parallel,
                                              EmbeddingTensors::FromUnit(gradients), stream));
  return store_.GradientsReady(units_.embedding, stream);
}

}  // namespace tessera
