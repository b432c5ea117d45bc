// Attention without a stored T x K matrix: forward keeps the log-sum-exp of each row, backward
// recomputes the probabilities from it (Dao et al., FlashAttention, arXiv 2205.14135, algorithms 1
// and 4; Milakov and Gimelshein, arXiv 1805.02867 for the softmax).
//
// Legend: B sequences of T queries, N query heads, G key and value heads (G divides N; query head h
// reads kv head h * G / N), H channels of a head. Causal: K = past + T keys, of which query t sees
// the first past + t + 1. Not causal: K = keys, all seen by every query. q, k, v and d_output have
// one element type S (fp32, bf16, fp16); output and gradients have S or fp32; products, softmax and
// log_sum_exp are fp32, and every result is rounded once. Matrices may be column views of a packed
// (B*T, 3C) matrix.
//
// Sequences of q, output, d_output and d_q begin query_rows rows apart, so that those matrices have
// QM = (B-1) * query_rows + T rows: with the default, query_rows = T, B*T. Those of k, v, d_k and
// d_v begin key_rows rows apart, of which the first K are keys: KM = B * key_rows, by default B*K.
// log_sum_exp's rows of T may lie at any stride.
#ifndef TESSERA_KERNELS_ATTENTION_H_
#define TESSERA_KERNELS_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct AttentionShape {
  int64_t batch = 0;       // B
  int64_t time = 0;        // T
  int64_t heads = 0;       // N
  int64_t kv_heads = 0;    // G
  int64_t head_size = 0;   // H
  float scale = 1;         // factor of q.k, 1 / sqrt(H) as a rule
  int64_t past = 0;        // keys before the first query's own; causal only
  int64_t key_rows = 0;    // at least K; 0: K
  bool causal = true;      // false: every query sees all keys
  int64_t keys = 0;        // K where not causal, which may be 0; else 0
  int64_t query_rows = 0;  // at least T; 0: T

  // K.
  int64_t num_keys() const { return causal ? past + time : keys; }
  int64_t num_key_rows() const { return key_rows == 0 ? num_keys() : key_rows; }
  int64_t num_query_rows() const { return query_rows == 0 ? time : query_rows; }
};

// Bytes of the workspace that forward and backward need on this device for elements of dtype; O(K)
// per thread: on CPU two blocks of 64 x K scores, and for 16-bit types four of K x H.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device,
                                DType dtype = DType::kFloat32);

// output (QM, N*H) =, log_sum_exp (B, N, T) = from q (QM, N*H), k and v (KM, G*H). Rows of output
// between two sequences stay as they are. With K = 0 output is 0 and log_sum_exp -infinity.
// workspace: uint8, contiguous, at least AttentionWorkspaceBytes. INVALID_ARGUMENT: shapes or
// dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status AttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                              const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                              const Tensor& workspace, Stream& stream);

// d_q (QM, N*H) =, d_k =, d_v = (KM, G*H; the first K rows of each sequence) from d_output
// (QM, N*H) and forward's arguments. The gradients overlap no input. Errors as AttentionForward.
//
// output and log_sum_exp may be those of attention over more keys than these K, merged as
// kernels/attention_merge.h does: the result is then exactly these keys' part of its gradients. d_k
// and d_v are whole, and d_q is summed over the parts (FlashAttention, appendix B.2: with the whole
// softmax's log-sum-exp L and D = d_output . output, dS_ij = exp(s_ij - L_i) (dP_ij - D_i) names no
// other key).
absl::Status AttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                               const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                               const Tensor& d_v, const Tensor& workspace, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_ATTENTION_H_
