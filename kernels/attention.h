// Causal self-attention without a stored T x T matrix: forward keeps the log-sum-exp of each row,
// backward recomputes the probabilities from it (Dao et al., FlashAttention, arXiv 2205.14135,
// algorithms 1 and 4; Milakov and Gimelshein, arXiv 1805.02867 for the softmax).
//
// Legend: B sequences of T tokens, N query heads, G key and value heads (G divides N; query head h
// reads kv head h * G / N), H channels of a head; K = past + T keys, of which query t sees the
// first past + t + 1. q, k, v, output and their gradients have one element type S (fp32, bf16,
// fp16); products, softmax and log_sum_exp are fp32, and every result is rounded once. Matrices may
// be column views of a packed (B*T, 3C) matrix.
#ifndef TESSERA_KERNELS_ATTENTION_H_
#define TESSERA_KERNELS_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct AttentionShape {
  int64_t batch = 0;      // B
  int64_t time = 0;       // T
  int64_t heads = 0;      // N
  int64_t kv_heads = 0;   // G
  int64_t head_size = 0;  // H
  float scale = 1;        // factor of q.k, 1 / sqrt(H) as a rule
  // For decoding with a cache of keys and values; forward only.
  int64_t past = 0;      // tokens before the first query
  int64_t key_rows = 0;  // rows of k and v per sequence, at least K; 0: K
};

// Bytes of the workspace that forward and backward need on this device for elements of dtype; O(K)
// per thread: on CPU two blocks of 64 x K scores, and for 16-bit types four of K x H.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device,
                                DType dtype = DType::kFloat32);

// output (B*T, N*H) =, log_sum_exp (B, N, T) = from q (B*T, N*H), k and v (B*key_rows, G*H), of
// whose rows the first K of each sequence are read.
// workspace: uint8, contiguous, at least AttentionWorkspaceBytes. INVALID_ARGUMENT: shapes or
// dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status CausalAttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& output,
                                    const Tensor& log_sum_exp, const Tensor& workspace,
                                    Stream& stream);

// d_q (B*T, N*H) =, d_k =, d_v = (B*T, G*H) from d_output (B*T, N*H) and forward's arguments.
// The gradients overlap no input. REQUIRES: past and key_rows are 0 (INVALID_ARGUMENT). Errors as
// CausalAttentionForward.
absl::Status CausalAttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& output,
                                     const Tensor& log_sum_exp, const Tensor& d_output,
                                     const Tensor& d_q, const Tensor& d_k, const Tensor& d_v,
                                     const Tensor& workspace, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_ATTENTION_H_
