// The CPU's implementation of every operation family. Contracts are in kernels/<family>.h, whose
// .cc has checked the arguments and is the only caller.
//
// Results do not depend on num_threads: threads share out outputs, never the terms of a sum.
#ifndef TESSERA_KERNELS_CPU_CPU_KERNELS_H_
#define TESSERA_KERNELS_CPU_CPU_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"
#include "kernels/tensor.h"

namespace tessera::cpu {

// REQUIRES: the stream's device is a CpuDevice.
inline int NumThreads(const Stream& stream) {
  return static_cast<const CpuDevice&>(stream.device()).num_threads();
}

absl::Status Matmul(const Tensor& a, const Tensor& b, const Tensor& output,
                    const MatmulOptions& options, int num_threads);
absl::Status AddRowSum(const Tensor& input, const Tensor& output, int num_threads);

absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output, int num_threads);
absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const Tensor& d_position_table,
                               int num_threads);

absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, int num_threads);
absl::Status LayerNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                               const Tensor& d_input, const Tensor& d_weight, const Tensor& d_bias,
                               int num_threads);

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device);
absl::Status CausalAttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& output,
                                    const Tensor& log_sum_exp, const Tensor& workspace,
                                    int num_threads);
absl::Status CausalAttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& output,
                                     const Tensor& log_sum_exp, const Tensor& d_output,
                                     const Tensor& d_q, const Tensor& d_k, const Tensor& d_v,
                                     const Tensor& workspace, int num_threads);

absl::Status GeluForward(const Tensor& input, const Tensor& output, int num_threads);
absl::Status GeluBackward(const Tensor& input, const Tensor& d_output, const Tensor& d_input,
                          int num_threads);

absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses,
                          int num_threads);

absl::Status AdamW(const Tensor& parameter, const Tensor& gradient, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const AdamWOptions& options, int num_threads);
absl::Status SquaredNorm(const Tensor& input, const Tensor& output, int num_threads);
absl::Status Add(const Tensor& a, const Tensor& b, const Tensor& output, int num_threads);
absl::Status Scale(const Tensor& tensor, float factor, int num_threads);

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_CPU_KERNELS_H_
