// One decoder layer, pre-norm: x + attention(norm_1(x)), then that + mlp(norm_2(that)).
//
// Legend: M = B*T rows (tokens), R of them per rank in the norm regions (layout.h); C channels, F
// intermediate channels of this rank.
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
#include "worker/model/parallel_scratch.h"
#include "worker/model/self_attention.h"
#include "worker/tensor_parallel/tensor_parallel.h"

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
  Tensor middle;  // (R, C), after the attention branch
  NormActivations norm_2;
  MlpActivations mlp;
  Tensor output;  // (R, C)

  // All but output and attention, which several layers may share.
  static BlockActivations CreateInner(const ModelConfig& local, const AttentionShape& shape,
                                      int64_t shard_rows, ActivationBuffers& buffers);
};

// Gradients of activations, from which the weights' follow: of one layer and micro-batch where
// these are computed later, else shared by all.
struct BlockGradients {
  Tensor d_qkv;  // (M, ...)
  MlpGradients mlp;
  // Of the outputs of the two branches (R, C); null where the weights' gradients are computed at
  // once.
  Tensor d_middle;
  Tensor d_output;

  static BlockGradients Create(const ModelConfig& local, const AttentionShape& shape,
                               int64_t shard_rows, bool is_kept, ActivationBuffers& buffers);
};

// Shared by all layers; its contents do not outlive a call.
struct BlockScratch {
  AttentionScratch attention;
  ParallelScratch parallel;
  Tensor d_branch;           // (R, C); null where backward is not called
  BlockGradients gradients;  // null where each layer has its own
};

// A block's parts of the mesh and its shared memory, together.
struct BlockContext {
  const AttentionShape& shape;
  const BlockScratch& scratch;
  const TensorParallel& tp;
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

  // activations.* = from input (R, C); the result is activations.output. With a cache, as
  // SelfAttention::Decode.
  absl::Status Forward(const BlockContext& context, const Tensor& input,
                       const BlockTensors& parameters, const BlockActivations& activations,
                       const CachedTokens* cached, Stream& stream) const;
  // The part of activations that `what` names = as Forward left it, from input (R, C).
  absl::Status Restore(Recompute what, const BlockContext& context, const Tensor& input,
                       const BlockTensors& parameters, const BlockActivations& activations,
                       Stream& stream) const;
  // d_residual (R, C): on entry the gradient of activations.output, on return (=) that of input.
  // gradients.* +=: with weights at once all of them; else the norms' alone, and d_activations.*
  // keep what BackwardWeight needs.
  absl::Status Backward(const BlockContext& context, const Tensor& input,
                        const BlockTensors& parameters, const BlockActivations& activations,
                        const BlockGradients& d_activations, const Tensor& d_residual,
                        bool weights_at_once, const BlockTensors& gradients, Stream& stream) const;
  // gradients.* += of the matrices and their biases.
  absl::Status BackwardWeight(const BlockContext& context, const BlockActivations& activations,
                              const BlockGradients& d_activations, const BlockTensors& gradients,
                              Stream& stream) const;

 private:
  const Norm norm_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRANSFORMER_BLOCK_H_
