#include "worker/model/gpt2.h"

#include <utility>

#include "kernels/status_macros.h"
#include "worker/model/embedding.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

constexpr int kEmbeddingUnit = 0;

int LayerUnit(int layer) { return layer + 1; }

HeadTensors MakeHeadTensors(absl::Span<const Tensor> head, absl::Span<const Tensor> embedding) {
  return {{head[kFinalNormWeight], head[kFinalNormBias]}, embedding[kTokenEmbedding]};
}

// Input of a layer, or of the head for layer == L.
const Tensor& LayerInput(const Gpt2Activations& activations, int layer) {
  return layer == 0 ? activations.embedded : activations.layers[layer - 1].output;
}

}  // namespace

absl::StatusOr<Gpt2Activations> Gpt2Activations::Create(const ModelConfig& config, int64_t batch,
                                                        int64_t time, bool backward,
                                                        Device& device) {
  Gpt2Activations a(device);
  const int64_t rows = batch * time;
  a.shape = MakeAttentionShape(config, batch, time);
  a.ids = a.buffers.New(DType::kInt32, {batch, time}, "token ids");
  a.targets = a.buffers.New(DType::kInt32, {rows}, "targets");
  a.embedded = a.buffers.New(DType::kFloat32, {rows, config.hidden_size}, "embedding");
  for (int64_t i = 0; i < config.layers; ++i) {
    a.layers.push_back(BlockActivations::Create(config, a.shape, a.buffers));
  }
  a.head = HeadActivations::Create(config, rows, a.buffers);
  a.scratch = BlockScratch::Create(config, a.shape, backward, a.buffers);
  if (backward) {
    a.d_residual = a.buffers.New(DType::kFloat32, {rows, config.hidden_size}, "d_residual");
  }
  if (!a.buffers.status().ok()) return a.buffers.status();
  return a;
}

Gpt2::Gpt2(const ModelConfig& config, ParameterStore& store)
    : config_(config), store_(store), block_(config), head_(config) {}

absl::Status Gpt2::Forward(Gpt2Activations& activations, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(
      Embedding::Forward(activations.ids, embedding, activations.embedded, stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(kEmbeddingUnit, stream));
  for (int i = 0; i < config_.layers; ++i) {
    TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> layer,
                             store_.AcquireParameters(LayerUnit(i), stream));
    TESSERA_RETURN_IF_ERROR(store_.PrefetchParameters(LayerUnit(i) + 1, stream));
    TESSERA_RETURN_IF_ERROR(block_.Forward(activations.shape, LayerInput(activations, i),
                                           BlockTensors::FromUnit(layer), activations.layers[i],
                                           activations.scratch, stream));
    TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(LayerUnit(i), stream));
  }
  return ForwardHead(activations, stream);
}

absl::Status Gpt2::ForwardHead(Gpt2Activations& activations, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> head,
                           store_.AcquireParameters(head_unit(), stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(head_.Forward(LayerInput(activations, config_.layers),
                                        MakeHeadTensors(head, embedding), activations.head,
                                        stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(kEmbeddingUnit, stream));
  return store_.ReleaseParameters(head_unit(), stream);
}

absl::Status Gpt2::Loss(Gpt2Activations& activations, float gradient_scale, bool backward,
                        Stream& stream) const {
  return Head::Loss(activations.targets, gradient_scale, backward, activations.head, stream);
}

absl::Status Gpt2::Backward(Gpt2Activations& activations, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(BackwardHead(activations, stream));
  for (int i = static_cast<int>(config_.layers) - 1; i >= 0; --i) {
    TESSERA_RETURN_IF_ERROR(BackwardLayer(i, activations, stream));
  }
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                           store_.AcquireGradients(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(
      Embedding::Backward(activations.ids, activations.d_residual, gradients, stream));
  return store_.GradientsReady(kEmbeddingUnit, stream);
}

absl::Status Gpt2::BackwardHead(Gpt2Activations& activations, Stream& stream) const {
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> head,
                           store_.AcquireParameters(head_unit(), stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> embedding,
                           store_.AcquireParameters(kEmbeddingUnit, stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> d_head,
                           store_.AcquireGradients(head_unit(), stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> d_embedding,
                           store_.AcquireGradients(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(head_.Backward(LayerInput(activations, config_.layers),
                                         MakeHeadTensors(head, embedding), activations.head,
                                         activations.scratch.d_branch, activations.d_residual,
                                         MakeHeadTensors(d_head, d_embedding), stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(kEmbeddingUnit, stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(head_unit(), stream));
  return store_.GradientsReady(head_unit(), stream);
}

absl::Status Gpt2::BackwardLayer(int layer, Gpt2Activations& activations, Stream& stream) const {
  const int unit = LayerUnit(layer);
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> parameters,
                           store_.AcquireParameters(unit, stream));
  if (layer > 0) TESSERA_RETURN_IF_ERROR(store_.PrefetchParameters(unit - 1, stream));
  TESSERA_ASSIGN_OR_RETURN(absl::Span<const Tensor> gradients,
                           store_.AcquireGradients(unit, stream));
  TESSERA_RETURN_IF_ERROR(block_.Backward(
      activations.shape, LayerInput(activations, layer), BlockTensors::FromUnit(parameters),
      activations.layers[layer], activations.scratch, activations.d_residual,
      BlockTensors::FromUnit(gradients), stream));
  TESSERA_RETURN_IF_ERROR(store_.ReleaseParameters(unit, stream));
  return store_.GradientsReady(unit, stream);
}

}  // namespace tessera
