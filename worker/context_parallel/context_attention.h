// Causal self-attention of sequences whose tokens are spread over a cp group, zigzag (zigzag.h).
//
// Legend: cp ranks; B sequences of T tokens, of which each rank holds T/cp; M = B*T/cp local rows;
// N query heads and G kv heads of H channels: those of this tp_rank, the same on all cp ranks.
// Shapes are local. q, k, v, output and gradients have one element type S (fp32, bf16, fp16).
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_CONTEXT_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_CONTEXT_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/comm/communicator.h"

namespace tessera {

enum class ContextParallelKind : uint8_t {
  kRing,       // K and V are passed round, partial results merged: Liu et al., arXiv 2310.01889
  kAllGather,  // K and V are gathered: Dubey et al., arXiv 2407.21783, section 3.3.2
  kUlysses,    // all-to-all from tokens to heads and back: Jacobs et al., arXiv 2309.14509
};
const char* ContextParallelKindName(ContextParallelKind kind);  // "ring", "all_gather", "ulysses"

// One for a set of activations' shapes, shared by all layers. Owns its communication buffers and
// workspace, whose contents do not outlive a call; the communicator and the device outlive it. Used
// by one thread. All members of the group make the same calls in the same order. Results depend
// neither on timing nor on threads. After an error of the communicator only destruction is useful.
class ContextAttention {
 public:
  virtual ~ContextAttention() = default;

  // output (M, N*H) = from q (M, N*H), k, v (M, G*H), each a column view or not; log_sum_exp =,
  // fp32, contiguous, B*N*T/cp elements, whose order only Backward knows.
  virtual absl::Status Forward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& output, const Tensor& log_sum_exp, Stream& stream) = 0;
  // d_q (M, N*H) =, d_k =, d_v = (M, G*H), column views or not, from d_output (M, N*H) and
  // Forward's arguments and results. The gradients overlap no input. Gradients that ranks add up
  // are added in fp32 and rounded once. FAILED_PRECONDITION: made without backward.
  virtual absl::Status Backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& output, const Tensor& log_sum_exp,
                                const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                                const Tensor& d_v, Stream& stream) = 0;
};

// cp_group: null for one rank. local: batch B, time T/cp, heads N, kv_heads G, head_size, scale;
// the rest as by default. Takes no memory but the workspace, communicates nothing and copies
// nothing in a group of one. INVALID_ARGUMENT: T/cp is odd in a group of more than one; sizes; for
// ulysses, cp does not divide N, or neither of cp and G divides the other. RESOURCE_EXHAUSTED:
// device memory. Nothing is held on failure.
absl::StatusOr<std::unique_ptr<ContextAttention>> CreateContextAttention(
    ContextParallelKind kind, const AttentionShape& local, DType dtype, bool backward,
    Communicator* cp_group, Device& device);

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_CONTEXT_ATTENTION_H_
