#include "worker/context_parallel/group_attention.h"

#include "kernels/check.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {

GroupAttention::GroupAttention(const AttentionShape& local, DType dtype, bool backward,
                               Communicator* cp_group, Device& device)
    : local_(local),
      dtype_(dtype),
      backward_(backward),
      group_(cp_group),
      cp_size_(cp_group == nullptr ? 1 : cp_group->size()),
      cp_rank_(cp_group == nullptr ? 0 : cp_group->group_rank()),
      rows_(local.batch * local.time),
      half_rows_(local.time / kZigzagHalves),
      q_columns_(local.heads * local.head_size),
      k_columns_(local.kv_heads * local.head_size),
      tensors_(device) {}

absl::Status GroupAttention::CheckForward(const Tensor& q, const Tensor& k, const Tensor& v,
                                          const Tensor& output, const Tensor& log_sum_exp,
                                          Stream& stream) const {
  ArgumentChecks checks("context_attention", stream);
  return checks.Rows("q", q, dtype_, {rows_, q_columns_})
      .Rows("k", k, dtype_, {rows_, k_columns_})
      .Rows("v", v, dtype_, {rows_, k_columns_})
      .Rows("output", output, dtype_, {rows_, q_columns_})
      .Dense("log_sum_exp", log_sum_exp, DType::kFloat32, log_sum_exp.shape())
      .That(log_sum_exp.num_elements() == rows_ * local_.heads,
            "log_sum_exp must have an element for each row and head")
      .status();
}

absl::Status GroupAttention::CheckBackward(const Tensor& d_output, const Tensor& d_q,
                                           const Tensor& d_k, const Tensor& d_v,
                                           Stream& stream) const {
  if (!backward_) {
    return absl::FailedPreconditionError("context_attention: created without backward");
  }
  ArgumentChecks checks("context_attention", stream);
  return checks.Rows("d_output", d_output, dtype_, {rows_, q_columns_})
      .Rows("d_q", d_q, dtype_, {rows_, q_columns_})
      .Rows("d_k", d_k, dtype_, {rows_, k_columns_})
      .Rows("d_v", d_v, dtype_, {rows_, k_columns_})
      .status();
}

Tensor GroupAttention::SumsOf(const Tensor& log_sum_exp, int first_half, int halves) const {
  const Tensor rows = log_sum_exp.Reshape({local_.batch * local_.heads, local_.time})
                          .Columns(first_half * half_rows_, halves * half_rows_);
  return Tensor(rows.device(), rows.dtype(), {local_.batch, local_.heads, halves * half_rows_},
                rows.address(), rows.row_stride());
}

}  // namespace tessera
