#include "worker/context_parallel/local_attention.h"

#include "kernels/status_macros.h"

namespace tessera {

LocalAttention::LocalAttention(const AttentionShape& local, DType dtype, bool backward,
                               Communicator* cp_group, Device& device)
    : GroupAttention(local, dtype, backward, cp_group, device),
      workspace_(tensors_.NewWorkspace(local, dtype)) {}

absl::Status LocalAttention::Forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& output, const Tensor& log_sum_exp,
                                     Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  const Tensor sums = log_sum_exp.Reshape({local_.batch, local_.heads, local_.time});
  return AttentionForward(local_, q, k, v, output, sums, workspace_, stream);
}

absl::Status LocalAttention::Backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& output, const Tensor& log_sum_exp,
                                      const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                                      const Tensor& d_v, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_RETURN_IF_ERROR(CheckBackward(d_output, d_q, d_k, d_v, stream));
  const Tensor sums = log_sum_exp.Reshape({local_.batch, local_.heads, local_.time});
  return AttentionBackward(local_, q, k, v, output, sums, d_output, d_q, d_k, d_v, workspace_,
                           stream);
}

}  // namespace tessera
