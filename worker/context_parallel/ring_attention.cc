#include "worker/context_parallel/ring_attention.h"

#include <utility>

#include "kernels/attention_merge.h"
#include "kernels/matrix_copy.h"
#include "kernels/status_macros.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {
namespace {

absl::Status Finish(std::unique_ptr<CollectiveHandle>& handle) {
  return handle == nullptr ? absl::OkStatus() : std::exchange(handle, nullptr)->Wait();
}

}  // namespace

RingAttention::RingAttention(const AttentionShape& local, DType dtype, bool backward,
                             Communicator* cp_group, Device& device)
    : GroupAttention(local, dtype, backward, cp_group, device),
      next_((cp_rank_ + 1) % cp_size_),
      previous_((cp_rank_ + cp_size_ - 1) % cp_size_) {
  const Shape queries{rows_, q_columns_}, keys{rows_, 2 * k_columns_};
  for (Tensor& kv : kv_) kv = tensors_.New(dtype, keys, "ring k and v");
  if (dtype != DType::kFloat32) sum_ = tensors_.New(DType::kFloat32, queries, "ring sum");
  partial_ = tensors_.New(DType::kFloat32, queries, "ring partial result");
  partial_sums_ = tensors_.New(DType::kFloat32, {local.batch, local.heads, local.time},
                               "ring partial log-sum-exp");
  if (backward) {
    home_ = tensors_.New(DType::kFloat32, keys, "ring own d_k and d_v");
    for (Tensor& d_kv : d_kv_) d_kv = tensors_.New(DType::kFloat32, keys, "ring d_k and d_v");
    if (cp_size_ > 2) {
      d_kv_partial_ = tensors_.New(DType::kFloat32, keys, "ring partial d_k and d_v");
    }
  }
  // Causal on the own keys is the largest.
  workspace_ = tensors_.NewWorkspace(local, dtype);
}

RingAttention::Step RingAttention::StepOf(int key_cp_rank) const {
  const ZigzagView view = ZigzagSees(cp_rank_, key_cp_rank);
  Step step;
  step.first_half = view.first_half;
  step.halves = kZigzagHalves - view.first_half;
  step.shape = local_;
  step.shape.time = step.halves * half_rows_;
  step.shape.query_rows = local_.time;
  step.shape.key_rows = local_.time;
  step.shape.causal = view.causal;
  step.shape.keys = view.causal ? 0 : view.num_halves * half_rows_;
  return step;
}

absl::Status RingAttention::Pack(const Tensor& k, const Tensor& v, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CopyMatrix(k, KeysOf(kv_[0]), stream));
  return CopyMatrix(v, ValuesOf(kv_[0]), stream);
}

absl::Status RingAttention::StartExchange(int step, Stream& stream) {
  if (step == cp_size_ - 1) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(send_, group_->StartSend(kv_[step % 2], next_, stream));
  TESSERA_ASSIGN_OR_RETURN(receive_, group_->StartRecv(kv_[(step + 1) % 2], previous_, stream));
  return absl::OkStatus();
}

absl::Status RingAttention::FinishExchange() {
  TESSERA_RETURN_IF_ERROR(Finish(receive_));
  return Finish(send_);
}

absl::Status RingAttention::SendGradients(int step, Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(gradient_send_[step % 2],
                           group_->StartSend(d_kv_[step % 2], next_, stream));
  return absl::OkStatus();
}

absl::Status RingAttention::ReceiveGradients(int step, Stream& stream) {
  // What was sent from there two steps ago has gone.
  TESSERA_RETURN_IF_ERROR(Finish(gradient_send_[step % 2]));
  TESSERA_ASSIGN_OR_RETURN(gradient_receive_,
                           group_->StartRecv(d_kv_[step % 2], previous_, stream));
  return absl::OkStatus();
}

absl::Status RingAttention::Forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& output, const Tensor& log_sum_exp,
                                    Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_RETURN_IF_ERROR(Pack(k, v, stream));
  const Tensor sum = sum_.is_null() ? output : sum_;
  for (int s = 0; s < cp_size_; ++s) {
    TESSERA_RETURN_IF_ERROR(StartExchange(s, stream));
    const Step step = StepOf(Source(s));
    const Tensor& kv = kv_[s % 2];
    const auto queries = [&](const Tensor& matrix) {
      return HalvesOf(matrix, step.first_half, step.halves);
    };
    const Tensor sums = SumsOf(log_sum_exp, step.first_half, step.halves);
    const Tensor part_sums = s == 0 ? sums : SumsOf(partial_sums_, step.first_half, step.halves);
    const Tensor part = queries(s == 0 ? sum : partial_);
    TESSERA_RETURN_IF_ERROR(AttentionForward(step.shape, queries(q), KeysOf(kv), ValuesOf(kv), part,
                                             part_sums, workspace_, stream));
    if (s > 0) {
      TESSERA_RETURN_IF_ERROR(
          MergeAttention(part, part_sums, local_.time, queries(sum), sums, stream));
    }
    TESSERA_RETURN_IF_ERROR(FinishExchange());
  }
  return sum_.is_null() ? absl::OkStatus() : CopyMatrix(sum_, output, stream);
}

absl::Status RingAttention::AddQueryGradients(const Step& step, const Tensor& d_q_sum,
                                              Stream& stream) {
  for (int64_t b = 0; b < local_.batch; ++b) {
    for (int half = step.first_half; half < kZigzagHalves; ++half) {
      TESSERA_RETURN_IF_ERROR(AddInto(Half(partial_, b, half), Half(d_q_sum, b, half), stream));
    }
  }
  return absl::OkStatus();
}

absl::Status RingAttention::Backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& output, const Tensor& log_sum_exp,
                                     const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                                     const Tensor& d_v, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckForward(q, k, v, output, log_sum_exp, stream));
  TESSERA_RETURN_IF_ERROR(CheckBackward(d_output, d_q, d_k, d_v, stream));
  TESSERA_RETURN_IF_ERROR(Pack(k, v, stream));
  const Tensor d_q_sum = sum_.is_null() ? d_q : sum_;
  for (int s = 0; s < cp_size_; ++s) {
    // Gradients first: the left neighbour has sent them before the next keys.
    if (s >= 2) TESSERA_RETURN_IF_ERROR(ReceiveGradients(s, stream));
    TESSERA_RETURN_IF_ERROR(StartExchange(s, stream));
    const Step step = StepOf(Source(s));
    const Tensor& kv = kv_[s % 2];
    const Tensor& d_kv = s == 0 ? home_ : s == 1 ? d_kv_[1] : d_kv_partial_;
    const auto queries = [&](const Tensor& matrix) {
      return HalvesOf(matrix, step.first_half, step.halves);
    };
    // Keys that no query sees get no gradient.
    if (step.shape.num_keys() < local_.time) {
      TESSERA_RETURN_IF_ERROR(stream.device().SetZero(d_kv, stream));
    }
    TESSERA_RETURN_IF_ERROR(AttentionBackward(
        step.shape, queries(q), KeysOf(kv), ValuesOf(kv), queries(output),
        SumsOf(log_sum_exp, step.first_half, step.halves), queries(d_output),
        queries(s == 0 ? d_q_sum : partial_), KeysOf(d_kv), ValuesOf(d_kv), workspace_, stream));
    if (s > 0) TESSERA_RETURN_IF_ERROR(AddQueryGradients(step, d_q_sum, stream));
    if (s >= 2) {
      TESSERA_RETURN_IF_ERROR(Finish(gradient_receive_));
      TESSERA_RETURN_IF_ERROR(AddInto(d_kv_partial_, d_kv_[s % 2], stream));
    }
    if (s >= 1) TESSERA_RETURN_IF_ERROR(SendGradients(s, stream));
    TESSERA_RETURN_IF_ERROR(FinishExchange());
  }
  TESSERA_RETURN_IF_ERROR(ReceiveGradients(cp_size_, stream));
  TESSERA_RETURN_IF_ERROR(Finish(gradient_receive_));
  TESSERA_RETURN_IF_ERROR(AddInto(d_kv_[cp_size_ % 2], home_, stream));
  for (Handle& send : gradient_send_) TESSERA_RETURN_IF_ERROR(Finish(send));
  if (!sum_.is_null()) TESSERA_RETURN_IF_ERROR(CopyMatrix(sum_, d_q, stream));
  TESSERA_RETURN_IF_ERROR(CopyMatrix(KeysOf(home_), d_k, stream));
  return CopyMatrix(ValuesOf(home_), d_v, stream);
}

}  // namespace tessera
