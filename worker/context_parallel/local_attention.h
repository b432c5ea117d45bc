// Context attention in a group of one: the kernel, on whole sequences.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_LOCAL_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_LOCAL_ATTENTION_H_

#include "worker/context_parallel/group_attention.h"

namespace tessera {

// As ContextAttention.
class LocalAttention : public GroupAttention {
 public:
  LocalAttention(const AttentionShape& local, DType dtype, bool backward, Communicator* cp_group,
                 Device& device);

  absl::Status Forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                       const Tensor& log_sum_exp, Stream& stream) override;
  absl::Status Backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                        const Tensor& log_sum_exp, const Tensor& d_output, const Tensor& d_q,
                        const Tensor& d_k, const Tensor& d_v, Stream& stream) override;

 private:
  Tensor workspace_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_LOCAL_ATTENTION_H_
