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
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rotary.h"
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
                              const Tensor& position_table, const Tensor& output,
                              const EmbeddingOptions& options, int num_threads);
absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const EmbeddingOptions& options,
                               int num_threads);
absl::Status AddPositions(const Tensor& position_table, const Tensor& positions, int64_t time,
                          const Tensor& output, int num_threads);
absl::Status AddPositionsBackward(const Tensor& d_output, const Tensor& positions, int64_t time,
                                  const Tensor& d_position_table, int num_threads);

absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, int num_threads);
absl::Status LayerNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                               const Tensor& d_input, const Tensor& d_weight, const Tensor& d_bias,
                               int num_threads);

absl::Status RmsNormForward(const Tensor& input, const Tensor& weight, float epsilon,
                            const Tensor& output, const Tensor& rstd, int num_threads);
absl::Status RmsNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                             const Tensor& rstd, const Tensor& addend, const Tensor& d_input,
                             const Tensor& d_weight, int num_threads);

absl::Status RotaryTable(const RotaryOptions& options, int64_t first_position,
                         const Tensor& positions, const Tensor& table, int num_threads);
absl::Status Rotary(const Tensor& table, bool inverse, const Tensor& x, int num_threads);

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device, DType dtype);
absl::Status AttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                              const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                              const Tensor& workspace, int num_threads);
absl::Status AttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                               const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                               const Tensor& d_v, const Tensor& workspace, int num_threads);

absl::Status MergeAttention(const Tensor& partial, const Tensor& partial_log_sum_exp,
                            int64_t query_rows, const Tensor& output, const Tensor& log_sum_exp,
                            int num_threads);

absl::Status GeluForward(const Tensor& input, const Tensor& output, int num_threads);
absl::Status GeluBackward(const Tensor& input, const Tensor& d_output, const Tensor& d_input,
                          int num_threads);

absl::Status SwiGluForward(const Tensor& gate, const Tensor& up, const Tensor& output,
                           int num_threads);
absl::Status SwiGluBackward(const Tensor& gate, const Tensor& up, const Tensor& d_output,
                            const Tensor& d_gate, const Tensor& d_up, int num_threads);

absl::Status Dropout(const Tensor& input, const DropoutOptions& options, const Tensor& output,
                     int num_threads);

absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses,
                          int num_threads);

absl::Status CrossEntropyStatistics(const Tensor& logits, const Tensor& targets,
                                    int64_t num_classes, const VocabularySlice& slice,
                                    const Tensor& row_max, const Tensor& exp_sum,
                                    const Tensor& target_logit, int num_threads);
absl::Status CombineCrossEntropy(const Tensor& row_max, const Tensor& exp_sum,
                                 const Tensor& target_logit, const Tensor& targets,
                                 const Tensor& log_sum_exp, const Tensor& losses, int num_threads);
absl::Status CrossEntropyGradient(const Tensor& logits, const Tensor& targets,
                                  const CrossEntropyOptions& options, const VocabularySlice& slice,
                                  const Tensor& log_sum_exp, int num_threads);

absl::Status AdamW(const Tensor& parameter, const Tensor& gradient, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const AdamWOptions& options, int num_threads);
absl::Status SquaredNorm(const Tensor& input, const Tensor& output, int num_threads);
absl::Status Add(const Tensor& a, const Tensor& b, const Tensor& output, int num_threads);
absl::Status Scale(const Tensor& tensor, float factor, int num_threads);
absl::Status CopyMatrix(const Tensor& from, const Tensor& to, int num_threads);
absl::Status AddInto(const Tensor& input, const Tensor& sum, int num_threads);
absl::Status Cast(const Tensor& input, const Tensor& output, int num_threads);

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_CPU_KERNELS_H_
