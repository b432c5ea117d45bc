// Causal self-attention with its projections: multi-head or with grouped kv heads, with or without
// rotary positions; of a micro-batch, or of one sequence that goes on where its cache ends.
//
// Legend: B sequences of T tokens, M = B*T, C channels; N query heads and G kv heads of H, so
// Q = N*H and K = G*H columns.
#ifndef TESSERA_WORKER_MODEL_SELF_ATTENTION_H_
#define TESSERA_WORKER_MODEL_SELF_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/linear.h"
#include "worker/model/model_config.h"

namespace tessera {

// Weights or their gradients. Either qkv is set (GPT-2) or q, k and v are (Llama).
struct AttentionTensors {
  LinearTensors qkv;         // C to Q + 2K, columns q | k | v
  LinearTensors q, k, v;     // C to Q, K, K
  LinearTensors projection;  // Q to C
};

// Views into the activations of one micro-batch.
struct AttentionActivations {
  Tensor qkv;          // (M, Q + 2K), after the rotation
  Tensor output;       // (M, Q), heads side by side
  Tensor log_sum_exp;  // (B, N, T)

  static AttentionActivations Create(const AttentionShape& shape, ActivationBuffers& buffers);
};

// Scratch shared by all layers; its contents do not outlive a call, but for rotary_table's.
struct AttentionScratch {
  Tensor d_qkv;         // (M, Q + 2K); null where backward is not called
  Tensor d_output;      // (M, Q); null where backward is not called
  Tensor rotary_table;  // (T, H), see kernels/rotary.h; null where positions are learned
  Tensor workspace;     // AttentionWorkspaceBytes

  static AttentionScratch Create(const ModelConfig& config, const AttentionShape& shape,
                                 bool backward, ActivationBuffers& buffers);
};

// One layer's keys and values of a sequence.
struct AttentionCache {
  Tensor k, v;  // (P, K); rows up to the sequence's length are set
};

// The kernel's view of a micro-batch of `batch` sequences of `time` tokens.
AttentionShape MakeAttentionShape(const ModelConfig& config, int64_t batch, int64_t time);

// rotary_table = for positions first_position + t; nothing where it is null.
absl::Status FillRotaryTable(const ModelConfig& config, int64_t first_position,
                             const AttentionScratch& scratch, Stream& stream);

// Stateless; used by one thread.
class SelfAttention {
 public:
  // output (M, C) = residual (M, C) + attention(input (M, C)); activations.* =.
  static absl::Status Forward(const AttentionShape& shape, const Tensor& input,
                              const AttentionTensors& parameters, const Tensor& residual,
                              const AttentionActivations& activations,
                              const AttentionScratch& scratch, const Tensor& output,
                              Stream& stream);
  // activations.* = from input (M, C): what Backward needs, to the same bits as Forward.
  static absl::Status ForwardHeads(const AttentionShape& shape, const Tensor& input,
                                   const AttentionTensors& parameters,
                                   const AttentionActivations& activations,
                                   const AttentionScratch& scratch, Stream& stream);
  // d_input (M, C) = the attention branch's gradient from d_output (M, C); gradients.* +=.
  static absl::Status Backward(const AttentionShape& shape, const Tensor& input,
                               const AttentionTensors& parameters,
                               const AttentionActivations& activations, const Tensor& d_output,
                               const AttentionScratch& scratch, const Tensor& d_input,
                               const AttentionTensors& gradients, Stream& stream);
  // As Forward, for the T tokens of one sequence that follow the shape.past in the cache, whose
  // next T rows are written; of activations, q's columns, output and log_sum_exp are.
  static absl::Status Decode(const AttentionShape& shape, const Tensor& input,
                             const AttentionTensors& parameters, const Tensor& residual,
                             const AttentionActivations& activations,
                             const AttentionScratch& scratch, const AttentionCache& cache,
                             const Tensor& output, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_SELF_ATTENTION_H_
