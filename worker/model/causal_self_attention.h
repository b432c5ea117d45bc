// Causal multi-head self-attention with its two projections.
//
// Legend: B sequences of T tokens, M = B*T, C channels in N heads of H. fp32.
#ifndef TESSERA_WORKER_MODEL_CAUSAL_SELF_ATTENTION_H_
#define TESSERA_WORKER_MODEL_CAUSAL_SELF_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/linear.h"
#include "worker/model/model_config.h"

namespace tessera {

// Weights or their gradients.
struct AttentionTensors {
  LinearTensors qkv;         // (C, 3C), columns q | k | v
  LinearTensors projection;  // (C, C)
};

// Views into the activations of one micro-batch.
struct AttentionActivations {
  Tensor qkv;          // (M, 3C)
  Tensor output;       // (M, C), heads side by side
  Tensor log_sum_exp;  // (B, N, T)

  static AttentionActivations Create(const AttentionShape& shape, ActivationBuffers& buffers);
};

// Scratch shared by all layers; its contents do not outlive a call.
struct AttentionScratch {
  Tensor d_qkv;      // (M, 3C); null where backward is not called
  Tensor d_output;   // (M, C); null where backward is not called
  Tensor workspace;  // AttentionWorkspaceBytes

  static AttentionScratch Create(const AttentionShape& shape, bool backward,
                                 ActivationBuffers& buffers);
};

// The kernel's view of a micro-batch of `batch` sequences of `time` tokens.
AttentionShape MakeAttentionShape(const ModelConfig& config, int64_t batch, int64_t time);

// Used by one thread.
class CausalSelfAttention {
 public:
  // output (M, C) = residual (M, C) + attention(input (M, C)); activations.* =.
  static absl::Status Forward(const AttentionShape& shape, const Tensor& input,
                              const AttentionTensors& parameters, const Tensor& residual,
                              const AttentionActivations& activations,
                              const AttentionScratch& scratch, const Tensor& output,
                              Stream& stream);
  // d_input (M, C) = the attention branch's gradient from d_output (M, C); gradients.* +=.
  static absl::Status Backward(const AttentionShape& shape, const Tensor& input,
                               const AttentionTensors& parameters,
                               const AttentionActivations& activations, const Tensor& d_output,
                               const AttentionScratch& scratch, const Tensor& d_input,
                               const AttentionTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_CAUSAL_SELF_ATTENTION_H_
