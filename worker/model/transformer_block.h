// One decoder layer, pre-norm: x + attention(norm_1(x)), then that + mlp(norm_2(that)).
//
// Legend: M = B*T rows (tokens), C channels, F intermediate channels.
#ifndef TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_
#define TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/mlp.h"
#include "worker/model/model_config.h"
#include "worker/model/norm.h"
#include "worker/model/self_attention.h"

namespace tessera {

// Weights or their gradients.
struct BlockTensors {
  NormTensors norm_1;
  AttentionTensors attention;
  NormTensors norm_2;
  MlpTensors mlp;

  // unit: in the order of the family's layer parameters.
  static BlockTensors FromUnit(const ModelConfig& config, absl::Span<const Tensor> unit);
};

// What forward keeps for backward, of one layer and micro-batch.
struct BlockActivations {
  NormActivations norm_1;
  AttentionActivations attention;
  Tensor middle;  // (M, C), after the attention branch
  NormActivations norm_2;
  MlpActivations mlp;
  Tensor output;  // (M, C)

  // All but output and attention, which several layers may share.
  static BlockActivations CreateInner(const ModelConfig& config, const AttentionShape& shape,
                                      ActivationBuffers& buffers);
};

// Shared by all layers; its contents do not outlive a call.
struct BlockScratch {
  AttentionScratch attention;
  MlpScratch mlp;
  Tensor d_branch;  // (M, C); null where backward is not called

  static BlockScratch Create(const ModelConfig& config, const AttentionShape& shape, bool backward,
                             ActivationBuffers& buffers);
};

// What is not kept from forward to backward and computed once more, to the same bits.
enum class Recompute : uint8_t {
  kNone,
  kAttention,  // q, k, v, the heads' output and its log-sum-exp
  kFull,       // everything but the layer's output
};

// Used by one thread.
class TransformerBlock {
 public:
  explicit TransformerBlock(const ModelConfig& config) : norm_(config) {}

  // activations.* = from input (M, C); the result is activations.output. With a cache, as
  // SelfAttention::Decode.
  absl::Status Forward(const AttentionShape& shape, const Tensor& input,
                       const BlockTensors& parameters, const BlockActivations& activations,
                       const BlockScratch& scratch, const AttentionCache* cache,
                       Stream& stream) const;
  // The part of activations that `what` names = as Forward left it, from input (M, C).
  absl::Status Restore(Recompute what, const AttentionShape& shape, const Tensor& input,
                       const BlockTensors& parameters, const BlockActivations& activations,
                       const BlockScratch& scratch, Stream& stream) const;
  // d_residual (M, C): on entry the gradient of activations.output, on return (=) that of input.
  // gradients.* +=.
  absl::Status Backward(const AttentionShape& shape, const Tensor& input,
                        const BlockTensors& parameters, const BlockActivations& activations,
                        const BlockScratch& scratch, const Tensor& d_residual,
                        const BlockTensors& gradients, Stream& stream) const;

 private:
  const Norm norm_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_
