#include "worker/model/transformer_block.h"

#include "kernels/status_macros.h"
#include "worker/model/units.h"

namespace tessera {

BlockTensors BlockTensors::FromUnit(absl::Span<const Tensor> t) {
  return {{t[kLn1Weight], t[kLn1Bias]},
          {{t[kAttentionWeight], t[kAttentionBias]},
           {t[kAttentionProjectionWeight], t[kAttentionProjectionBias]}},
          {t[kLn2Weight], t[kLn2Bias]},
          {{t[kMlpWeight], t[kMlpBias]}, {t[kMlpProjectionWeight], t[kMlpProjectionBias]}}};
}

BlockActivations BlockActivations::Create(const ModelConfig& config, const AttentionShape& shape,
                                          ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time, channels = config.hidden_size;
  BlockActivations activations;
  activations.ln_1 = LayerNormActivations::Create(rows, channels, buffers);
  activations.attention = AttentionActivations::Create(shape, buffers);
  activations.middle = buffers.New(DType::kFloat32, {rows, channels}, "residual after attention");
  activations.ln_2 = LayerNormActivations::Create(rows, channels, buffers);
  activations.mlp = MlpActivations::Create(rows, config.intermediate_size, buffers);
  activations.output = buffers.New(DType::kFloat32, {rows, channels}, "residual after mlp");
  return activations;
}

BlockScratch BlockScratch::Create(const ModelConfig& config, const AttentionShape& shape,
                                  bool backward, ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time;
  BlockScratch scratch;
  scratch.attention = AttentionScratch::Create(shape, backward, buffers);
  if (backward) {
    scratch.d_branch = buffers.New(DType::kFloat32, {rows, config.hidden_size}, "d_branch");
    scratch.d_up = buffers.New(DType::kFloat32, {rows, config.intermediate_size}, "mlp d_up");
  }
  return scratch;
}

absl::Status TransformerBlock::Forward(const AttentionShape& shape, const Tensor& input,
                                       const BlockTensors& parameters,
                                       const BlockActivations& activations,
                                       const BlockScratch& scratch, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.ln_1, activations.ln_1, stream));
  TESSERA_RETURN_IF_ERROR(CausalSelfAttention::Forward(
      shape, activations.ln_1.output, parameters.attention, input, activations.attention,
      scratch.attention, activations.middle, stream));
  TESSERA_RETURN_IF_ERROR(
      norm_.Forward(activations.middle, parameters.ln_2, activations.ln_2, stream));
  return Mlp::Forward(activations.ln_2.output, parameters.mlp, activations.middle, activations.mlp,
                      activations.output, stream);
}

absl::Status TransformerBlock::Backward(const AttentionShape& shape, const Tensor& input,
                                        const BlockTensors& parameters,
                                        const BlockActivations& activations,
                                        const BlockScratch& scratch, const Tensor& d_residual,
                                        const BlockTensors& gradients, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(Mlp::Backward(activations.ln_2.output, parameters.mlp, activations.mlp,
                                        d_residual, scratch.d_up, scratch.d_branch, gradients.mlp,
                                        stream));
  TESSERA_RETURN_IF_ERROR(norm_.Backward(activations.middle, parameters.ln_2, activations.ln_2,
                                         scratch.d_branch, d_residual, d_residual, gradients.ln_2,
                                         stream));
  TESSERA_RETURN_IF_ERROR(CausalSelfAttention::Backward(
      shape, activations.ln_1.output, parameters.attention, activations.attention, d_residual,
      scratch.attention, scratch.d_branch, gradients.attention, stream));
  return norm_.Backward(input, parameters.ln_1, activations.ln_1, scratch.d_branch, d_residual,
                        d_residual, gradients.ln_1, stream);
}

}  // namespace tessera
