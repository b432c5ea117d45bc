// Attention of one sequence's newest tokens to a KV cache that is spread over a cp group
// (cache_shard.h): each rank attends to the keys it holds, and the parts are merged.
//
// Legend: T new tokens, N query heads and G kv heads of H channels (of this tp_rank); R rows of
// this rank's cache. q, k, v and output have one element type S (fp32, bf16, fp16).
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_CACHE_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_CACHE_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/comm/communicator.h"
#include "worker/context_parallel/device_tensors.h"

namespace tessera {

// Owns its communication buffers, which do not depend on R, and its workspace, which is O(R); the
// communicator and the device outlive it. Used by one thread. All members of the group make the
// same calls with the same q, and get the same bits of output: the parts are gathered and merged by
// each in the order of ranks. In a group of one it is the kernel and communicates nothing.
class CacheAttention {
 public:
  // cp_group: null for one rank. limits: batch 1; time, the most T of a call; heads, kv_heads,
  // head_size, scale; key_rows, R; the rest as by default. INVALID_ARGUMENT: sizes;
  // RESOURCE_EXHAUSTED: device memory. Nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<CacheAttention>> Create(const AttentionShape& limits,
                                                                DType dtype, Communicator* cp_group,
                                                                Device& device);

  // output (T, N*H) = from q (T, N*H), each a column view or not, and the first `keys` rows of k, v
  // (R, G*H), which may be none. owns_newest: the last T of these are the queries' own, of which
  // query t sees the first t + 1; else every query sees all of them. One rank owns them, and all
  // others hold earlier tokens alone.
  absl::Status Forward(const Tensor& q, const Tensor& k, const Tensor& v, int64_t keys,
                       bool owns_newest, const Tensor& output, Stream& stream);

 private:
  CacheAttention(const AttentionShape& limits, DType dtype, Communicator* cp_group, Device& device);

  const AttentionShape limits_;
  const DType dtype_;
  Communicator* const group_;  // null: one rank
  DeviceTensors tensors_;
  Tensor parts_;  // fp32: of each rank, output (T, N*H), then log_sum_exp (N, T)
  Tensor workspace_;
};

// Calls and bytes of one Forward of T tokens, as its communicator counts them: an all_gather of
// cp * T * N * (H + 1) * 4 bytes, nothing in a group of one.
CommunicatorStats PredictCacheAttention(const AttentionShape& limits, int64_t time, int cp_size);

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_CACHE_ATTENTION_H_
