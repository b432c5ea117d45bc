#include "worker/context_parallel/all_gather_attention.h"

#include "kernels/matrix_copy.h"
#include "kernels/status_macros.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {

AllGatherAttention::AllGatherAttention(const AttentionShape& local, DType dtype, bool backward,
                                       Communicator* cp_group, Device& device)
    : GroupAttention(local, dtype, backward, cp_group, device), time_(local.time * cp_size_) {
  const Shape all{cp_size_ * rows_, 2 * k_columns_};
  by_rank_ = tensors_.New(dtype, all, "gathered k and v");
  kv_ = tensors_.New(dtype, all, "k and v of whole sequences");
  if (backward) {
    d_kv_ = tensors_.New(DType::kFloat32, all, "d_k and d_v of whole sequences");
    d_by_rank_ = tensors_.New(DType::kFloat32, all, "d_k and d_v to scatter");
  }
  AttentionShape largest = ShapeOf(0);
  largest.past = time_ - half_rows_;
  workspace_ = tensors_.NewWorkspace(largest, dtype);
}

AttentionShape AllGatherAttention::ShapeOf(int half) const {
  AttentionShape shape = local_;
  shape.time = half_rows_;
  shape.past = ZigzagPiece(cp_size_, cp_rank_, half) * half_rows_;
  shape.query_rows = local_.time;
  shape.key_rows = time_;
  return shape;
}

absl::Status AllGatherAttention::Gather(const Tensor& k, const Tensor& v, Stream& stream) {
  const Tensor own = OwnRows(by_rank_);
  TESSERA_RETURN_IF_ERROR(CopyMatrix(k, KeysOf(own), stream));
  TESSERA_RETURN_IF_ERROR(CopyMatrix(v, ValuesOf(own), stream));
  TESSERA_RETURN_IF_ERROR(group_->AllGather(own, by_rank_, stream));
  for (int rank = 0; rank < cp_size_; ++rank) {
    const Tensor theirs = by_rank_.Rows(rank * rows_, rows_);
    for (int half = 0; half < kZigzagHalves; ++half) {
      const int64_t first = ZigzagPiece(cp_size_, rank, half) * half_rows_;
      for (int64_t b = 0; b < local_.batch; ++b) {
        TESSERA_RETURN_IF_ERROR(
            CopyMatrix(Half(theirs, b, half), kv_.Rows(b * time_ + first, half_rows_), stream));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AllGatherAttention::Forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& output, const Tensor& log_sum_exp,
                                         Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_RETURN_IF_ERROR(Gather(k, v, stream));
  for (int half = 0; half < kZigzagHalves; ++half) {
    TESSERA_RETURN_IF_ERROR(AttentionForward(ShapeOf(half), HalvesOf(q, half, 1), KeysOf(kv_),
                                             ValuesOf(kv_), HalvesOf(output, half, 1),
                                             SumsOf(log_sum_exp, half, 1), workspace_, stream));
  }
  return absl::OkStatus();
}

absl::Status AllGatherAttention::Scatter(int64_t keys, bool accumulate, Stream& stream) {
  for (int rank = 0; rank < cp_size_; ++rank) {
    const Tensor theirs = d_by_rank_.Rows(rank * rows_, rows_);
    for (int half = 0; half < kZigzagHalves; ++half) {
      const int64_t first = ZigzagPiece(cp_size_, rank, half) * half_rows_;
      for (int64_t b = 0; b < local_.batch; ++b) {
        const Tensor from = d_kv_.Rows(b * time_ + first, half_rows_);
        const Tensor to = Half(theirs, b, half);
        if (first >= keys) {
          if (!accumulate) TESSERA_RETURN_IF_ERROR(stream.device().SetZero(to, stream));
        } else if (accumulate) {
          TESSERA_RETURN_IF_ERROR(AddInto(from, to, stream));
        } else {
          TESSERA_RETURN_IF_ERROR(CopyMatrix(from, to, stream));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AllGatherAttention::Backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                          const Tensor& output, const Tensor& log_sum_exp,
                                          const Tensor& d_output, const Tensor& d_q,
                                          const Tensor& d_k, const Tensor& d_v, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_RETURN_IF_ERROR(CheckBackward(d_output, d_q, d_k, d_v, stream));
  TESSERA_RETURN_IF_ERROR(Gather(k, v, stream));
  for (int half = 0; half < kZigzagHalves; ++half) {
    const AttentionShape shape = ShapeOf(half);
    TESSERA_RETURN_IF_ERROR(AttentionBackward(
        shape, HalvesOf(q, half, 1), KeysOf(kv_), ValuesOf(kv_), HalvesOf(output, half, 1),
        SumsOf(log_sum_exp, half, 1), HalvesOf(d_output, half, 1), HalvesOf(d_q, half, 1),
        KeysOf(d_kv_), ValuesOf(d_kv_), workspace_, stream));
    TESSERA_RETURN_IF_ERROR(Scatter(shape.num_keys(), half > 0, stream));
  }
  const Tensor own = OwnRows(d_by_rank_);
  TESSERA_RETURN_IF_ERROR(group_->ReduceScatter(d_by_rank_, own, ReduceOp::kSum, stream));
  TESSERA_RETURN_IF_ERROR(CopyMatrix(KeysOf(own), d_k, stream));
  return CopyMatrix(ValuesOf(own), d_v, stream);
}

}  // namespace tessera
