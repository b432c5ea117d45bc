#include "worker/model/transformer.h"

#include <optional>
#include <utility>

#include "kernels/status_macros.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

constexpr int kEmbeddingUnit = 0;

int LayerUnit(int layer) { return layer + 1; }

// embedding: the embedding unit, where tied.
HeadTensors MakeHeadTensors(const ModelConfig& config, absl::Span<const Tensor> head,
                            absl::Span<const Tensor> embedding) {
  HeadTensors tensors;
  const bool is_llama = config.family == ModelFamily::kLlama;
  if (is_llama) {
    tensors.norm = {head[kLlamaFinalNorm], Tensor()};
  } else {
    tensors.norm = {head[kFinalNormWeight], head[kFinalNormBias]};
  }
  if (config.tie_word_embeddings) {
    tensors.tokens = EmbeddingTensors::FromUnit(embedding).tokens;
  } else {
    tensors.tokens = is_llama ? head[kLlamaHeadWeight] : head[kGpt2HeadWeight];
  }
  return tensors;
}

// Input of a layer, or of the head for layer == L.
const Tensor& LayerInput(const TransformerActivations& activations, int layer) {
  return layer == 0 ? activations.embedded : activations.layers[layer - 1].output;
}

}  // namespace

absl::StatusOr<TransformerActivations> TransformerActivations::Create(
    const ModelConfig& config, const ActivationOptions& options, Device& device) {
  TransformerActivations a(options, device);
  const int64_t rows = options.batch * options.time;
  a.shape = MakeAttentionShape(config, options.batch, options.time);
  // The workspace of attention depends on the longest sequence.
  if (options.cached > 0) {
    a.shape.past = options.cached - options.time;
    a.shape.key_rows = options.cached;
  }
  a.ids = a.buffers.New(DType::kInt32, {options.batch, options.time}, "token ids");
  a.targets = a.buffers.New(DType::kInt32, {rows}, "targets");
  a.embedded = a.buffers.New({rows, config.hidden_size}, "embedding");
  a.AddLayers(config, options.backward);
  a.head = HeadActivations::Create(config, rows, a.buffers);
  a.scratch = BlockScratch::Create(config, a.shape, options.backward, a.buffers);
  if (options.backward) a.d_residual = a.buffers.New({rows, config.hidden_size}, "d_residual");
  if (!a.buffers.status().ok()) return a.buffers.status();
  return a;
}

void TransformerActivations::AddLayers(const ModelConfig& config, bool backward) {
  const Shape shape{embedded.shape()};
  // Without backward every layer uses one set of tensors, and reads what the layer before wrote to
  // the other of two outputs.
  std::optional<AttentionActivations> shared_attention;
  std::optional<BlockActivations> shared_inner;
  Tensor outputs[2];
  for (int64_t i = 0; i < config.layers; ++i) {
    const Recompute what = backward ? recompute.of(i) : Recompute::kFull;
    if (what != Recompute::kNone && !shared_attention) {
      shared_attention = AttentionActivations::Create(this->shape, buffers);
    }
    if (what == Recompute::kFull && !shared_inner) {
      shared_inner = BlockActivations::CreateInner(config, this->shape, buffers);
    }
    BlockActivations layer = what == Recompute::kFull
                                 ? *shared_inner
                                 : BlockActivations::CreateInner(config, this->shape, buffers);
    layer.attention = what == Recompute::kNone ? AttentionActivations::Create(this->shape, buffers)
                                               : *shared_attention;
    layer.output = backward || i < 2 ? buffers.New(shape, "residual after mlp") : outputs[i % 2];
    outputs[i % 2] = layer.output;
    layers.push_back(layer);
  }
}

absl::StatusOr<KvCache> KvCache::Create(const ModelConfig& config, int64_t capacity, DType dtype,
                                        Device& device) {
  KvCache cache{capacity, 0, {}, ActivationBuffers(device, dtype)};
  const Shape shape{capacity, config.num_kv_heads() * config.head_size()};
  for (int64_t i = 0; i < config.layers; ++i) {
    cache.layers.push_back(
        {cache.buffers.New(shape, "kv cache"), cache.buffers.New(shape, "kv cache")});
  }
  if (!cache.buffers.status().ok()) return cache.buffers.status();
  return cache;
}

Transformer::Transformer(const ModelConfig& config, ParameterStore& store)
    : config_(config), store_(store), block_(config), head_(config) {}

absl::StatusOr<HeadTensors> Transformer::AcquireHead(Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> head,
                           store_.AcquireParameters(head_unit(), stream));
  if (!config_.tie_word_embeddings) return MakeHeadTensors(config_, head, {});
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(kEmbeddingUnit, stream));
  return MakeHeadTensors(config_, head, embedding);
}

absl::Status Transformer::ReleaseHead(Stream& stream) const {
  if (config_.tie_word_embeddings) {
    TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(kEmbeddingUnit, stream));
  }
  return store_.ReleaseParameters(head_unit(), stream);
}

absl::StatusOr<HeadTensors> Transformer::AcquireHeadGradients(Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> head,
                           store_.AcquireGradients(head_unit(), stream));
  if (!config_.tie_word_embeddings) return MakeHeadTensors(config_, head, {});
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireGradients(kEmbeddingUnit, stream));
  return MakeHeadTensors(config_, head, embedding);
}

absl::Status Transformer::Forward(TransformerActivations& activations, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(ForwardLayers(activations, nullptr, stream));
  return ForwardHead(activations, stream);
}

absl::Status Transformer::Decode(TransformerActivations& activations, bool with_logits,
                                 KvCache& cache, Stream& stream) const {
  activations.shape.past = cache.length;
  activations.shape.key_rows = cache.capacity;
  TESSERA_RETURN_IF_ERROR(ForwardLayers(activations, &cache, stream));
  cache.length += activations.shape.time;
  return with_logits ? ForwardHead(activations, stream) : absl::OkStatus();
}

absl::Status Transformer::ForwardLayers(TransformerActivations& activations, const KvCache* cache,
                                        Stream& stream) const {
  const int64_t first_position = cache == nullptr ? 0 : cache->length;
  TESSERA_RETURN_IF_ERROR(
      FillRotaryTable(config_, first_position, activations.scratch.attention, stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(Embedding::Forward(activations.ids, first_position,
                                             EmbeddingTensors::FromUnit(embedding),
                                             activations.embedded, stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(kEmbeddingUnit, stream));
  for (int i = 0; i < config_.layers; ++i) {
    TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> layer,
                             store_.AcquireParameters(LayerUnit(i), stream));
    TESSERA_RETURN_IF_ERROR(store_.PrefetchParameters(LayerUnit(i) + 1, stream));
    TESSERA_RETURN_IF_ERROR(block_.Forward(activations.shape, LayerInput(activations, i),
                                           BlockTensors::FromUnit(config_, layer),
                                           activations.layers[i], activations.scratch,
                                           cache == nullptr ? nullptr : &cache->layers[i], stream));
    TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(LayerUnit(i), stream));
  }
  return absl::OkStatus();
}

absl::Status Transformer::ForwardHead(TransformerActivations& activations, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(const HeadTensors parameters, AcquireHead(stream));
  TESSERA_RETURN_IF_ERROR(
      head_.Forward(LayerInput(activations, config_.layers), parameters, activations.head, stream));
  return ReleaseHead(stream);
}

absl::Status Transformer::Loss(TransformerActivations& activations, float gradient_scale,
                               bool backward, Stream& stream) const {
  return Head::Loss(activations.targets, gradient_scale, backward, activations.head, stream);
}

absl::Status Transformer::Backward(TransformerActivations& activations, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(BackwardHead(activations, stream));
  for (int i = static_cast<int>(config_.layers) - 1; i >= 0; --i) {
    TESSERA_RETURN_IF_ERROR(BackwardLayer(i, activations, stream));
  }
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                           store_.AcquireGradients(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(Embedding::Backward(activations.ids, activations.d_residual,
                                              EmbeddingTensors::FromUnit(gradients), stream));
  return store_.GradientsReady(kEmbeddingUnit, stream);
}

absl::Status Transformer::BackwardHead(TransformerActivations& activations, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(const HeadTensors parameters, AcquireHead(stream));
  TESSERA_ASSIGN_OR_RETURN(const HeadTensors gradients, AcquireHeadGradients(stream));
  TESSERA_RETURN_IF_ERROR(head_.Backward(LayerInput(activations, config_.layers), parameters,
                                         activations.head, activations.scratch.d_branch,
                                         activations.d_residual, gradients, stream));
  TESSERA_RETURN_IF_ERROR(ReleaseHead(stream));
  return store_.GradientsReady(head_unit(), stream);
}

absl::Status Transformer::BackwardLayer(int layer, TransformerActivations& activations,
                                        Stream& stream) const {
  const int unit = LayerUnit(layer);
  const Tensor& input = LayerInput(activations, layer);
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> unit_parameters,
                           store_.AcquireParameters(unit, stream));
  if (layer > 0) TESSERA_RETURN_IF_ERROR(store_.PrefetchParameters(unit - 1, stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                           store_.AcquireGradients(unit, stream));
  const BlockTensors parameters = BlockTensors::FromUnit(config_, unit_parameters);
  TESSERA_RETURN_IF_ERROR(block_.Restore(activations.recompute.of(layer), activations.shape, input,
                                         parameters, activations.layers[layer], activations.scratch,
                                         stream));
  TESSERA_RETURN_IF_ERROR(block_.Backward(
      activations.shape, input, parameters, activations.layers[layer], activations.scratch,
      activations.d_residual, BlockTensors::FromUnit(config_, gradients), stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(unit, stream));
  return store_.GradientsReady(unit, stream);
}

}  // namespace tessera
