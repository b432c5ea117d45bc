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

BlockActivations BlockActivations::CreateInner(const ModelConfig& local,
                                               const AttentionShape& shape, int64_t shard_rows,
                                               ActivationBuffers& buffers) {
  BlockActivations activations;
  activations.norm_1 = NormActivations::Create(local, shard_rows, buffers);
  activations.middle = buffers.New({shard_rows, local.hidden_size}, "residual after attention");
  activations.norm_2 = NormActivations::Create(local, shard_rows, buffers);
  activations.mlp = MlpActivations::Create(local, shape.batch * shape.time, buffers);
  return activations;
}

BlockGradients BlockGradients::Create(const ModelConfig& local, const AttentionShape& shape,
                                      int64_t shard_rows, bool is_kept,
                                      ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time;
  const int64_t columns = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  BlockGradients gradients;
  gradients.d_qkv = buffers.New({rows, columns}, "attention d_qkv");
  gradients.mlp = MlpGradients::Create(local, rows, buffers);
  if (!is_kept) return gradients;
  gradients.d_middle = buffers.New({shard_rows, local.hidden_size}, "d_middle");
  gradients.d_output = buffers.New({shard_rows, local.hidden_size}, "d_output");
  return gradients;
}

absl::Status TransformerBlock::Forward(const BlockContext& context, const Tensor& input,
                                       const BlockTensors& parameters,
                                       const BlockActivations& activations,
                                       const CachedTokens* cached, Stream& stream) const {
  const BlockScratch& scratch = context.scratch;
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm_1, activations.norm_1, stream));
  if (cached != nullptr) {
    TESSERA_RETURN_IF_ERROR(
        SelfAttention::Decode(context.shape, activations.norm_1.output, parameters.attention, input,
                              activations.attention, scratch.attention, scratch.parallel, *cached,
                              activations.middle, context.tp, stream));
  } else {
    TESSERA_RETURN_IF_ERROR(
        SelfAttention::Forward(context.shape, activations.norm_1.output, parameters.attention,
                               input, activations.attention, scratch.attention, scratch.parallel,
                               activations.middle, context.tp, stream));
  }
  TESSERA_RETURN_IF_ERROR(
      norm_.Forward(activations.middle, parameters.norm_2, activations.norm_2, stream));
  return Mlp::Forward(activations.norm_2.output, parameters.mlp, activations.middle,
                      activations.mlp, scratch.parallel, activations.output, context.tp, stream);
}

absl::Status TransformerBlock::Restore(Recompute what, const BlockContext& context,
                                       const Tensor& input, const BlockTensors& parameters,
                                       const BlockActivations& activations, Stream& stream) const {
  if (what == Recompute::kNone) return absl::OkStatus();
  const BlockScratch& scratch = context.scratch;
  const Tensor& normalized = activations.norm_1.output;
  if (what == Recompute::kAttention) {
    return SelfAttention::ForwardHeads(context.shape, normalized, parameters.attention,
                                       activations.attention, scratch.attention, scratch.parallel,
                                       context.tp, stream);
  }
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm_1, activations.norm_1, stream));
  TESSERA_RETURN_IF_ERROR(SelfAttention::Forward(
      context.shape, normalized, parameters.attention, input, activations.attention,
      scratch.attention, scratch.parallel, activations.middle, context.tp, stream));
  TESSERA_RETURN_IF_ERROR(
      norm_.Forward(activations.middle, parameters.norm_2, activations.norm_2, stream));
  return Mlp::ForwardHidden(activations.norm_2.output, parameters.mlp, activations.mlp,
                            scratch.parallel, context.tp, stream);
}

absl::Status TransformerBlock::Backward(const BlockContext& context, const Tensor& input,
                                        const BlockTensors& parameters,
                                        const BlockActivations& activations,
                                        const BlockGradients& d_activations,
                                        const Tensor& d_residual, bool weights_at_once,
                                        const BlockTensors& gradients, Stream& stream) const {
  const auto& [shape, scratch, tp] = context;
  auto keep = [&](const Tensor& kept) {
    return weights_at_once ? absl::OkStatus() : stream.device().Copy(d_residual, kept, stream);
  };
  const Tensor& gathered = scratch.parallel.gathered;
  TESSERA_RETURN_IF_ERROR(keep(d_activations.d_output));
  TESSERA_ASSIGN_OR_RETURN(Tensor whole, tp.Gather(d_residual, gathered, stream));
  TESSERA_RETURN_IF_ERROR(Mlp::BackwardInput(parameters.mlp, activations.mlp, whole,
                                             d_activations.mlp, scratch.parallel, scratch.d_branch,
                                             tp, stream));
  if (weights_at_once) {
    TESSERA_RETURN_IF_ERROR(Mlp::BackwardWeight(activations.norm_2.output, activations.mlp, whole,
                                                d_activations.mlp, scratch.parallel, gradients.mlp,
                                                tp, stream));
  }
  TESSERA_RETURN_IF_ERROR(norm_.Backward(activations.middle, parameters.norm_2, activations.norm_2,
                                         scratch.d_branch, d_residual, d_residual, gradients.norm_2,
                                         stream));
  TESSERA_RETURN_IF_ERROR(keep(d_activations.d_middle));
  TESSERA_ASSIGN_OR_RETURN(whole, tp.Gather(d_residual, gathered, stream));
  TESSERA_RETURN_IF_ERROR(SelfAttention::BackwardInput(
      shape, parameters.attention, activations.attention, whole, scratch.attention,
      scratch.parallel, d_activations.d_qkv, scratch.d_branch, tp, stream));
  if (weights_at_once) {
    TESSERA_RETURN_IF_ERROR(SelfAttention::BackwardWeight(
        shape, activations.norm_1.output, activations.attention, whole, d_activations.d_qkv,
        scratch.parallel, gradients.attention, tp, stream));
  }
  return norm_.Backward(input, parameters.norm_1, activations.norm_1, scratch.d_branch, d_residual,
                        d_residual, gradients.norm_1, stream);
}

absl::Status TransformerBlock::BackwardWeight(const BlockContext& context,
                                              const BlockActivations& activations,
                                              const BlockGradients& d_activations,
                                              const BlockTensors& gradients, Stream& stream) const {
  const auto& [shape, scratch, tp] = context;
  const Tensor& gathered = scratch.parallel.gathered;
  TESSERA_ASSIGN_OR_RETURN(Tensor whole, tp.Gather(d_activations.d_output, gathered, stream));
  TESSERA_RETURN_IF_ERROR(Mlp::BackwardWeight(activations.norm_2.output, activations.mlp, whole,
                                              d_activations.mlp, scratch.parallel, gradients.mlp,
                                              tp, stream));
  TESSERA_ASSIGN_OR_RETURN(whole, tp.Gather(d_activations.d_middle, gathered, stream));
  return SelfAttention::BackwardWeight(shape, activations.norm_1.output, activations.attention,
                                       whole, d_activations.d_qkv, scratch.parallel,
                                       gradients.attention, tp, stream);
}

}  // namespace tessera
