#include "worker/model/transformer_block.h"

#include "kernels/status_macros.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

BlockTensors FromGpt2Unit(absl::Span<const Tensor> t) {
  BlockTensors tensors;
  tensors.norm_1 = {t[kLn1Weight], t[kLn1Bias]};
  tensors.attention.qkv = {t[kAttentionWeight], t[kAttentionBias], WeightLayout::kInOut};
  tensors.attention.projection = {t[kAttentionProjectionWeight], t[kAttentionProjectionBias],
                                  WeightLayout::kInOut};
  tensors.norm_2 = {t[kLn2Weight], t[kLn2Bias]};
  tensors.mlp.up = {t[kMlpWeight], t[kMlpBias], WeightLayout::kInOut};
  tensors.mlp.projection = {t[kMlpProjectionWeight], t[kMlpProjectionBias], WeightLayout::kInOut};
  return tensors;
}

BlockTensors FromLlamaUnit(bool attention_bias, absl::Span<const Tensor> t) {
  auto map = [&](int weight) -> LinearTensors {
    return {t[weight], Tensor(), WeightLayout::kOutIn};
  };
  BlockTensors tensors;
  tensors.norm_1.weight = t[kLlamaInputNorm];
  tensors.attention.q = map(kLlamaQuery);
  tensors.attention.k = map(kLlamaKey);
  tensors.attention.v = map(kLlamaValue);
  if (attention_bias) {
    tensors.attention.q.bias = t[kLlamaQueryBias];
    tensors.attention.k.bias = t[kLlamaKeyBias];
    tensors.attention.v.bias = t[kLlamaValueBias];
  }
  tensors.attention.projection = map(kLlamaOutput);
  tensors.norm_2.weight = t[kLlamaPostAttentionNorm];
  tensors.mlp.gate = map(kLlamaGate);
  tensors.mlp.up = map(kLlamaUp);
  tensors.mlp.projection = map(kLlamaDown);
  return tensors;
}

}  // namespace

BlockTensors BlockTensors::FromUnit(const ModelConfig& config, absl::Span<const Tensor> unit) {
  return config.family == ModelFamily::kLlama ? FromLlamaUnit(config.attention_bias, unit)
                                              : FromGpt2Unit(unit);
}

BlockActivations BlockActivations::CreateInner(const ModelConfig& config,
                                               const AttentionShape& shape,
                                               ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time;
  BlockActivations activations;
  activations.norm_1 = NormActivations::Create(config, rows, buffers);
  activations.middle = buffers.New({rows, config.hidden_size}, "residual after attention");
  activations.norm_2 = NormActivations::Create(config, rows, buffers);
  activations.mlp = MlpActivations::Create(config, rows, buffers);
  return activations;
}

BlockScratch BlockScratch::Create(const ModelConfig& config, const AttentionShape& shape,
                                  bool backward, ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time;
  BlockScratch scratch;
  scratch.attention = AttentionScratch::Create(config, shape, backward, buffers);
  scratch.mlp = MlpScratch::Create(config, rows, backward, buffers);
  if (backward) scratch.d_branch = buffers.New({rows, config.hidden_size}, "d_branch");
  return scratch;
}

absl::Status TransformerBlock::Forward(const AttentionShape& shape, const Tensor& input,
                                       const BlockTensors& parameters,
                                       const BlockActivations& activations,
                                       const BlockScratch& scratch, const AttentionCache* cache,
                                       Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm_1, activations.norm_1, stream));
  if (cache != nullptr) {
    TESSERA_RETURN_IF_ERROR(SelfAttention::Decode(
        shape, activations.norm_1.output, parameters.attention, input, activations.attention,
        scratch.attention, *cache, activations.middle, stream));
  } else {
    TESSERA_RETURN_IF_ERROR(SelfAttention::Forward(
        shape, activations.norm_1.output, parameters.attention, input, activations.attention,
        scratch.attention, activations.middle, stream));
  }
  TESSERA_RETURN_IF_ERROR(
      norm_.Forward(activations.middle, parameters.norm_2, activations.norm_2, stream));
  return Mlp::Forward(activations.norm_2.output, parameters.mlp, activations.middle,
                      activations.mlp, activations.output, stream);
}

absl::Status TransformerBlock::Restore(Recompute what, const AttentionShape& shape,
                                       const Tensor& input, const BlockTensors& parameters,
                                       const BlockActivations& activations,
                                       const BlockScratch& scratch, Stream& stream) const {
  if (what == Recompute::kNone) return absl::OkStatus();
  const Tensor& normalized = activations.norm_1.output;
  if (what == Recompute::kAttention) {
    return SelfAttention::ForwardHeads(shape, normalized, parameters.attention,
                                       activations.attention, scratch.attention, stream);
  }
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm_1, activations.norm_1, stream));
  TESSERA_RETURN_IF_ERROR(SelfAttention::Forward(shape, normalized, parameters.attention, input,
                                                 activations.attention, scratch.attention,
                                                 activations.middle, stream));
  TESSERA_RETURN_IF_ERROR(
      norm_.Forward(activations.middle, parameters.norm_2, activations.norm_2, stream));
  return Mlp::ForwardHidden(activations.norm_2.output, parameters.mlp, activations.mlp, stream);
}

absl::Status TransformerBlock::Backward(const AttentionShape& shape, const Tensor& input,
                                        const BlockTensors& parameters,
                                        const BlockActivations& activations,
                                        const BlockScratch& scratch, const Tensor& d_residual,
                                        const BlockTensors& gradients, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(Mlp::Backward(activations.norm_2.output, parameters.mlp, activations.mlp,
                                        d_residual, scratch.mlp, scratch.d_branch, gradients.mlp,
                                        stream));
  TESSERA_RETURN_IF_ERROR(norm_.Backward(activations.middle, parameters.norm_2, activations.norm_2,
                                         scratch.d_branch, d_residual, d_residual, gradients.norm_2,
                                         stream));
  TESSERA_RETURN_IF_ERROR(SelfAttention::Backward(
      shape, activations.norm_1.output, parameters.attention, activations.attention, d_residual,
      scratch.attention, scratch.d_branch, gradients.attention, stream));
  return norm_.Backward(input, parameters.norm_1, activations.norm_1, scratch.d_branch, d_residual,
                        d_residual, gradients.norm_1, stream);
}

}  // namespace tessera
