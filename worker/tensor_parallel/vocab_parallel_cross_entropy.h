// Softmax cross-entropy over logits whose columns (the vocabulary) are split over tp. Logits are
// never gathered: three fp32 numbers a row are (arXiv 1909.08053, section 3).
//
// Legend: M rows (tokens), v columns of this rank, Vp = v * tp_size >= V classes.
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_VOCAB_PARALLEL_CROSS_ENTROPY_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_VOCAB_PARALLEL_CROSS_ENTROPY_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/tensor_parallel/tensor_parallel.h"

namespace tessera {

// fp32 scratch, for tp_size > 1.
struct CrossEntropyScratch {
  Tensor statistics;   // (3, M): row_max, exp_sum, target_logit of this rank's columns
  Tensor gathered;     // (3, tp_size, M)
  Tensor log_sum_exp;  // (M)
};

// losses (M) = per row, 0 where targets (M) int32 is -1, the same bits on every rank. With
// backward, logits (M, v) become gradient_scale times their gradients; padding columns 0.
absl::Status VocabParallelCrossEntropy(const Tensor& logits, const Tensor& targets,
                                       int64_t vocab_size, float gradient_scale, bool backward,
                                       const CrossEntropyScratch& scratch, const Tensor& losses,
                                       const TensorParallel& tp, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_VOCAB_PARALLEL_CROSS_ENTROPY_H_
