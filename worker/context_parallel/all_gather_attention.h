// Context attention by gathering all keys.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_ALL_GATHER_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_ALL_GATHER_ATTENTION_H_

#include "worker/context_parallel/group_attention.h"

namespace tessera {

// As ContextAttention. K and V are gathered over cp and put in the order of tokens; each half of
// the queries then attends causally to the keys up to its own. Backward gathers again and
// reduce-scatters d_K and d_V in fp32.
class AllGatherAttention : public GroupAttention {
 public:
  AllGatherAttention(const AttentionShape& local, DType dtype, bool backward,
                     Communicator* cp_group, Device& device);

  absl::Status Forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                       const Tensor& log_sum_exp, Stream& stream) override;
  absl::Status Backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                        const Tensor& log_sum_exp, const Tensor& d_output, const Tensor& d_q,
                        const Tensor& d_k, const Tensor& d_v, Stream& stream) override;

 private:
  // Queries of one half, and the keys up to their own.
  AttentionShape ShapeOf(int half) const;
  // This rank's rows in a matrix of all ranks' rows.
  Tensor OwnRows(const Tensor& by_rank) const { return by_rank.Rows(cp_rank_ * rows_, rows_); }
  // kv_ = all ranks' K and V.
  absl::Status Gather(const Tensor& k, const Tensor& v, Stream& stream);
  // d_by_rank_ = or += the first `keys` rows of each sequence in d_kv_.
  absl::Status Scatter(int64_t keys, bool accumulate, Stream& stream);

  const int64_t time_;  // T
  Tensor by_rank_;      // (cp * M, 2*G*H): as gathered
  Tensor kv_;           // (B*T, 2*G*H): in the order of tokens
  Tensor d_kv_;         // (B*T, 2*G*H) fp32: of one half of the queries
  Tensor d_by_rank_;    // (cp * M, 2*G*H) fp32
  Tensor workspace_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_ALL_GATHER_ATTENTION_H_
