// Attention over some of the keys, folded into attention over others by log-sum-exp (Dao et al.,
// FlashAttention, arXiv 2205.14135, section 3.1; Liu et al., Ring Attention, arXiv 2310.01889).
//
// Legend: B sequences of T queries, N heads of H channels.
#ifndef TESSERA_KERNELS_ATTENTION_MERGE_H_
#define TESSERA_KERNELS_ATTENTION_MERGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// With a = log_sum_exp, b = partial_log_sum_exp (both (B, N, T), fp32, rows of T at any stride) and
// c = log(exp(a) + exp(b)):
//   output (QM, N*H) = exp(a - c) output + exp(b - c) partial, log_sum_exp = c,
// in fp32. output is fp32, partial (QM, N*H) fp32, bf16 or fp16; both at any row stride; sequences
// begin query_rows rows apart in both, as in kernels/attention.h, and 0 means T.
//
// Where b is -infinity nothing changes and partial is not read; where a is, output is not read: an
// accumulator is begun by log_sum_exp = -infinity, or by a first part's forward into it. A result
// depends on the order of merges alone. INVALID_ARGUMENT: shapes or dtypes that do not fit;
// UNIMPLEMENTED: no such backend.
absl::Status MergeAttention(const Tensor& partial, const Tensor& partial_log_sum_exp,
                            int64_t query_rows, const Tensor& output, const Tensor& log_sum_exp,
                            Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_ATTENTION_MERGE_H_
