#include "worker/context_parallel/ulysses_attention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/matrix_copy.h"
#include "kernels/status_macros.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {

absl::Status CheckUlyssesHeads(const AttentionShape& local, int cp_size) {
  if (local.heads % cp_size == 0 &&
      (local.kv_heads % cp_size == 0 || cp_size % local.kv_heads == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("context_attention: ulysses cannot divide ", local.heads, " heads and ",
                   local.kv_heads, " kv heads (of a tp rank) by cp ", cp_size,
                   ": cp must divide heads, and divide kv heads or be a multiple of them"));
}

UlyssesAttention::UlyssesAttention(const AttentionShape& local, DType dtype, bool backward,
                                   Communicator* cp_group, Device& device)
    : GroupAttention(local, dtype, backward, cp_group, device),
      split_(local, cp_size_),
      time_(local.time * cp_size_),
      head_columns_(split_.heads * local.head_size),
      kv_columns_(split_.kv_heads * local.head_size),
      shape_(local) {
  shape_.time = time_;
  shape_.heads = split_.heads;
  shape_.kv_heads = split_.kv_heads;
  const int64_t all_rows = cp_size_ * rows_, element = DTypeSizeBytes(dtype);
  const int64_t columns = (backward ? 3 : 1) * head_columns_ + 2 * kv_columns_;
  const bool replicated = backward && split_.replicas > 1;
  const int64_t row_bytes =
      std::max(columns * element,
               replicated ? 2 * kv_columns_ * DTypeSizeBytes(DType::kFloat32) : int64_t{0});
  send_ = tensors_.New(DType::kUInt8, {all_rows, row_bytes}, "all-to-all input");
  receive_ = tensors_.New(DType::kUInt8, {all_rows, row_bytes}, "all-to-all output");
  natural_ = tensors_.New(dtype, {all_rows, columns}, "heads of whole sequences");
  result_ = tensors_.New(
      dtype, {all_rows, head_columns_ + (backward && !replicated ? 2 * kv_columns_ : 0)},
      "results of whole sequences");
  if (replicated) {
    d_kv_ = tensors_.New(DType::kFloat32, {all_rows, 2 * kv_columns_}, "d_k and d_v of replicas");
  }
  workspace_ = tensors_.NewWorkspace(shape_, dtype);
}

Tensor UlyssesAttention::HeadsOf(const Part& part, int rank) const {
  const int64_t begin =
      part.of_keys ? rank * local_.kv_heads / cp_size_ * local_.head_size : rank * head_columns_;
  return part.rows.Columns(begin, ColumnsOf(part));
}

Tensor UlyssesAttention::MessageIn(const Tensor& buffer, DType dtype, int64_t columns) const {
  return Tensor(buffer.device(), dtype, {cp_size_ * rows_, columns}, buffer.address());
}

absl::StatusOr<Tensor> UlyssesAttention::ToHeads(absl::Span<const Part> parts, Stream& stream) {
  int64_t columns = 0;
  for (const Part& part : parts) columns += ColumnsOf(part);
  const Tensor send = MessageIn(send_, dtype_, columns);
  const Tensor receive = MessageIn(receive_, dtype_, columns);
  for (int rank = 0; rank < cp_size_; ++rank) {
    const Tensor block = send.Rows(rank * rows_, rows_);
    int64_t begin = 0;
    for (const Part& part : parts) {
      TESSERA_RETURN_IF_ERROR(
          CopyMatrix(HeadsOf(part, rank), block.Columns(begin, ColumnsOf(part)), stream));
      begin += ColumnsOf(part);
    }
  }
  TESSERA_RETURN_IF_ERROR(group_->AllToAll(send, receive, stream));
  const Tensor natural = MessageIn(natural_, dtype_, columns);
  for (int rank = 0; rank < cp_size_; ++rank) {
    for (int half = 0; half < kZigzagHalves; ++half) {
      const int64_t first = ZigzagPiece(cp_size_, rank, half) * half_rows_;
      for (int64_t b = 0; b < local_.batch; ++b) {
        TESSERA_RETURN_IF_ERROR(CopyMatrix(Half(receive.Rows(rank * rows_, rows_), b, half),
                                           natural.Rows(b * time_ + first, half_rows_), stream));
      }
    }
  }
  return natural;
}

absl::StatusOr<Tensor> UlyssesAttention::ToTokens(const Tensor& natural, Stream& stream) {
  const int64_t columns = natural.shape().last_dim();
  const Tensor send = MessageIn(send_, natural.dtype(), columns);
  const Tensor receive = MessageIn(receive_, natural.dtype(), columns);
  for (int rank = 0; rank < cp_size_; ++rank) {
    for (int half = 0; half < kZigzagHalves; ++half) {
      const int64_t first = ZigzagPiece(cp_size_, rank, half) * half_rows_;
      for (int64_t b = 0; b < local_.batch; ++b) {
        TESSERA_RETURN_IF_ERROR(CopyMatrix(natural.Rows(b * time_ + first, half_rows_),
                                           Half(send.Rows(rank * rows_, rows_), b, half), stream));
      }
    }
  }
  TESSERA_RETURN_IF_ERROR(group_->AllToAll(send, receive, stream));
  return receive;
}

absl::Status UlyssesAttention::Unpack(const Tensor& message, int64_t begin, const Part& part,
                                      Stream& stream) {
  const int64_t replicas = part.of_keys ? split_.replicas : 1;
  for (int rank = 0; rank < cp_size_; rank += static_cast<int>(replicas)) {
    const auto block = [&](int64_t from) {
      return message.Rows(from * rows_, rows_).Columns(begin, ColumnsOf(part));
    };
    for (int64_t replica = 1; replica < replicas; ++replica) {
      TESSERA_RETURN_IF_ERROR(AddInto(block(rank + replica), block(rank), stream));
    }
    TESSERA_RETURN_IF_ERROR(CopyMatrix(block(rank), HeadsOf(part, rank), stream));
  }
  return absl::OkStatus();
}

absl::Status UlyssesAttention::Forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Tensor& output, const Tensor& log_sum_exp,
                                       Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_ASSIGN_OR_RETURN(const Tensor rows, ToHeads({{q, false}, {k, true}, {v, true}}, stream));
  const Tensor result = MessageIn(result_, dtype_, head_columns_);
  TESSERA_RETURN_IF_ERROR(AttentionForward(
      shape_, rows.Columns(0, head_columns_), rows.Columns(head_columns_, kv_columns_),
      rows.Columns(head_columns_ + kv_columns_, kv_columns_), result,
      log_sum_exp.Reshape({local_.batch, split_.heads, time_}), workspace_, stream));
  TESSERA_ASSIGN_OR_RETURN(const Tensor message, ToTokens(result, stream));
  return Unpack(message, 0, {output, false}, stream);
}

absl::Status UlyssesAttention::Backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const Tensor& output, const Tensor& log_sum_exp,
                                        const Tensor& d_output, const Tensor& d_q,
                                        const Tensor& d_k, const Tensor& d_v, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_RETURN_IF_ERROR(CheckBackward(d_output, d_q, d_k, d_v, stream));
  TESSERA_ASSIGN_OR_RETURN(
      const Tensor rows,
      ToHeads({{q, false}, {k, true}, {v, true}, {output, false}, {d_output, false}}, stream));
  const int64_t keys_end = head_columns_ + 2 * kv_columns_;
  const bool replicated = !d_kv_.is_null();
  const Tensor d_kv = replicated ? d_kv_ : result_.Columns(head_columns_, 2 * kv_columns_);
  TESSERA_RETURN_IF_ERROR(AttentionBackward(
      shape_, rows.Columns(0, head_columns_), rows.Columns(head_columns_, kv_columns_),
      rows.Columns(head_columns_ + kv_columns_, kv_columns_), rows.Columns(keys_end, head_columns_),
      log_sum_exp.Reshape({local_.batch, split_.heads, time_}),
      rows.Columns(keys_end + head_columns_, head_columns_), result_.Columns(0, head_columns_),
      d_kv.Columns(0, kv_columns_), d_kv.Columns(kv_columns_, kv_columns_), workspace_, stream));
  TESSERA_ASSIGN_OR_RETURN(Tensor message, ToTokens(result_, stream));
  TESSERA_RETURN_IF_ERROR(Unpack(message, 0, {d_q, false}, stream));
  int64_t begin = head_columns_;
  if (replicated) {
    TESSERA_ASSIGN_OR_RETURN(message, ToTokens(d_kv_, stream));
    begin = 0;
  }
  TESSERA_RETURN_IF_ERROR(Unpack(message, begin, {d_k, true}, stream));
  return Unpack(message, begin + kv_columns_, {d_v, true}, stream);
}

}  // namespace tessera
