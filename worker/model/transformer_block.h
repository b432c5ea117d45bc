// One decoder layer, pre-norm: x + attention(ln_1(x)), then that + mlp(ln_2(that)).
//
// Legend: M = B*T rows (tokens), C channels, F intermediate channels. fp32.
#ifndef TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_
#define TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/causal_self_attention.h"
#include "worker/model/layer_norm.h"
#include "worker/model/mlp.h"
#include "worker/model/model_config.h"

namespace tessera {

// Weights or their gradients.
struct BlockTensors {
  LayerNormTensors ln_1;
  AttentionTensors attention;
  LayerNormTensors ln_2;
  MlpTensors mlp;

  // tensors: in the order of Gpt2LayerParameter.
  static BlockTensors FromUnit(absl::Span<const Tensor> tensors);
};

// What forward keeps for backward, of one layer and micro-batch.
struct BlockActivations {
  LayerNormActivations ln_1;
  AttentionActivations attention;
  Tensor middle;  // (M, C), after the attention branch
  LayerNormActivations ln_2;
  MlpActivations mlp;
  Tensor output;  // (M, C)

  static BlockActivations Create(const ModelConfig& config, const AttentionShape& shape,
                                 ActivationBuffers& buffers);
};

// Shared by all layers; its contents do not outlive a call.
struct BlockScratch {
  AttentionScratch attention;
  Tensor d_branch;  // (M, C); null where backward is not called
  Tensor d_up;      // (M, F); null where backward is not called

  static BlockScratch Create(const ModelConfig& config, const AttentionShape& shape, bool backward,
                             ActivationBuffers& buffers);
};

// Used by one thread.
class TransformerBlock {
 public:
  explicit TransformerBlock(const ModelConfig& config) : norm_(config.norm_epsilon) {}

  // activations.* = from input (M, C); the result is activations.output.
  absl::Status Forward(const AttentionShape& shape, const Tensor& input,
                       const BlockTensors& parameters, const BlockActivations& activations,
                       const BlockScratch& scratch, Stream& stream) const;
  // d_residual (M, C): on entry the gradient of activations.output, on return (=) that of input.
  // gradients.* +=.
  absl::Status Backward(const AttentionShape& shape, const Tensor& input,
                        const BlockTensors& parameters, const BlockActivations& activations,
                        const BlockScratch& scratch, const Tensor& d_residual,
                        const BlockTensors& gradients, Stream& stream) const;

 private:
  const LayerNorm norm_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_
