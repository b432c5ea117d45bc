// What the kinds of context attention share: sizes, memory, checks, and views of a rank's zigzag
// rows. Legend as context_attention.h; P = T / (2 cp) rows of a half.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_GROUP_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_GROUP_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/comm/communicator.h"
#include "worker/context_parallel/context_attention.h"
#include "worker/context_parallel/device_tensors.h"

namespace tessera {

// Sizes and memory are constant after construction. `status` says whether memory sufficed.
class GroupAttention : public ContextAttention {
 public:
  const absl::Status& status() const { return tensors_.status(); }

 protected:
  // local's sizes are checked: time is even.
  GroupAttention(const AttentionShape& local, DType dtype, bool backward, Communicator* cp_group,
                 Device& device);

  // INVALID_ARGUMENT where shapes or dtypes are not those of Forward's contract.
  absl::Status CheckForward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                            const Tensor& log_sum_exp, Stream& stream) const;
  // Of Backward's other arguments.
  absl::Status CheckBackward(const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                             const Tensor& d_v, Stream& stream) const;

  // The first P rows of a half of sequence b.
  Tensor Half(const Tensor& matrix, int64_t b, int half) const {
    return matrix.Rows(b * local_.time + half * half_rows_, half_rows_);
  }
  // Of every sequence the rows of `halves` halves from first_half on, for kernels that step to the
  // next sequence by query_rows = T/cp.
  Tensor HalvesOf(const Tensor& matrix, int first_half, int halves) const {
    return matrix.Rows(first_half * half_rows_,
                       (local_.batch - 1) * local_.time + halves * half_rows_);
  }
  // The same columns of log_sum_exp (B, N, T/cp).
  Tensor SumsOf(const Tensor& log_sum_exp, int first_half, int halves) const;
  // K and V side by side: its two column views.
  Tensor KeysOf(const Tensor& kv) const { return kv.Columns(0, k_columns_); }
  Tensor ValuesOf(const Tensor& kv) const { return kv.Columns(k_columns_, k_columns_); }

  const AttentionShape local_;
  const DType dtype_;
  const bool backward_;
  Communicator* const group_;  // null: one rank
  const int cp_size_, cp_rank_;
  const int64_t rows_;       // M
  const int64_t half_rows_;  // P
  const int64_t q_columns_;  // N*H
  const int64_t k_columns_;  // G*H
  DeviceTensors tensors_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_GROUP_ATTENTION_H_
