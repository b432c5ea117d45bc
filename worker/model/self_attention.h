// Causal self-attention with its projections: multi-head or with grouped kv heads, with or without
// rotary positions; of a micro-batch, or of one sequence that goes on where its cache ends.
//
// Legend: B sequences of T tokens (this rank's part of each, with context parallelism), M = B*T
// rows, R of them per rank in the norm regions; C channels; N query heads and G kv heads of H on
// this rank, so Q = N*H and K = G*H columns.
#ifndef TESSERA_WORKER_MODEL_SELF_ATTENTION_H_
#define TESSERA_WORKER_MODEL_SELF_ATTENTION_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/context_parallel/cache_attention.h"
#include "worker/context_parallel/context_attention.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/model_config.h"
#include "worker/model/parallel_scratch.h"
#include "worker/tensor_parallel/linear.h"
#include "worker/tensor_parallel/tensor_parallel.h"

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
  Tensor log_sum_exp;  // B*N*T fp32

  static AttentionActivations Create(const AttentionShape& shape, ActivationBuffers& buffers);
};

// Scratch shared by all layers; its contents do not outlive a call, but for rotary_table's.
struct AttentionScratch {
  Tensor d_output;      // (M, Q); null where backward is not called
  Tensor rotary_table;  // (T, H), see kernels/rotary.h; null where positions are learned
  ContextAttention* attention = nullptr;  // null where only Decode is called
  CacheAttention* cache = nullptr;        // for Decode; null where it is not called
};

// One layer's keys and values of a sequence.
struct AttentionCache {
  Tensor k, v;  // (P, K); rows up to the sequence's length are set
};

// A layer's cache and how much of it is set, when the next T tokens come.
struct CachedTokens {
  AttentionCache cache;
  int64_t length = 0;     // rows that are set on this rank
  bool owns_next = true;  // the next tokens' keys and values stay here
};

// The kernel's view of `batch` sequences of `time` tokens. local: one rank's sizes.
AttentionShape MakeAttentionShape(const ModelConfig& local, int64_t batch, int64_t time);

// rotary_table = for the positions (T) int32, or first_position + t where null; nothing where the
// table is null.
absl::Status FillRotaryTable(const ModelConfig& config, int64_t first_position,
                             const Tensor& positions, const AttentionScratch& scratch,
                             Stream& stream);

// Stateless; used by one thread.
class SelfAttention {
 public:
  // output (R, C) = residual (R, C) + attention(input (R, C)); activations.* =.
  static absl::Status Forward(const AttentionShape& shape, const Tensor& input,
                              const AttentionTensors& parameters, const Tensor& residual,
                              const AttentionActivations& activations,
                              const AttentionScratch& scratch, const ParallelScratch& parallel,
                              const Tensor& output, const TensorParallel& tp, Stream& stream);
  // activations.* = from input (R, C): what backward needs, to the same bits as Forward.
  static absl::Status ForwardHeads(const AttentionShape& shape, const Tensor& input,
                                   const AttentionTensors& parameters,
                                   const AttentionActivations& activations,
                                   const AttentionScratch& scratch, const ParallelScratch& parallel,
                                   const TensorParallel& tp, Stream& stream);
  // d_input (R, C) and d_qkv (M, Q + 2K) = the branch's gradients from whole_d_output (M, C), all
  // rows of the output's.
  static absl::Status BackwardInput(const AttentionShape& shape, const AttentionTensors& parameters,
                                    const AttentionActivations& activations,
                                    const Tensor& whole_d_output, const AttentionScratch& scratch,
                                    const ParallelScratch& parallel, const Tensor& d_qkv,
                                    const Tensor& d_input, const TensorParallel& tp,
                                    Stream& stream);
  // gradients.* += from input (R, C) and what BackwardInput wrote. whole_d_output may lie in
  // parallel.gathered, which is written after it was read.
  static absl::Status BackwardWeight(const AttentionShape& shape, const Tensor& input,
                                     const AttentionActivations& activations,
                                     const Tensor& whole_d_output, const Tensor& d_qkv,
                                     const ParallelScratch& parallel,
                                     const AttentionTensors& gradients, const TensorParallel& tp,
                                     Stream& stream);
  // As Forward, for the T tokens of one sequence (B = 1) that follow those in the cache; on the
  // rank that owns them their rows are written. Of activations, qkv, output and log_sum_exp are.
  static absl::Status Decode(const AttentionShape& shape, const Tensor& input,
                             const AttentionTensors& parameters, const Tensor& residual,
                             const AttentionActivations& activations,
                             const AttentionScratch& scratch, const ParallelScratch& parallel,
                             const CachedTokens& cached, const Tensor& output,
                             const TensorParallel& tp, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_SELF_ATTENTION_H_
