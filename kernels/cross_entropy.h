// Softmax cross-entropy, forward and backward in one pass over the logits; or over slices of the
// vocabulary that different ranks hold, in which case logits are never gathered.
//
// Legend: M rows (tokens), V classes, Vp >= V columns (padding columns never win and never count),
// R slices. Logits of one element type S (fp32, bf16, fp16), rows at any stride; targets int32, -1
// for none; all else fp32, contiguous.
#ifndef TESSERA_KERNELS_CROSS_ENTROPY_H_
#define TESSERA_KERNELS_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct CrossEntropyOptions {
  int64_t num_classes = 0;        // V
  float gradient_scale = 1;       // 1 / valid targets of the global batch
  bool overwrite_logits = false;  // logits become their gradients
};

// losses (M) fp32 = log(sum_j exp(logits[i, j])) - logits[i, targets[i]] over columns j < V, and 0
// where targets[i] is -1. targets (M). With overwrite_logits, logits (M, Vp) = gradient_scale *
// (softmax - one_hot), rounded once; 0 in rows without a target and in columns >= V. Sums of a row
// are fp32 within 512 columns and fp64 over them. INVALID_ARGUMENT: shapes, dtypes or num_classes
// that do not fit, or a target outside [-1, V) (checked on CPU only); UNIMPLEMENTED: no such
// backend.
absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses, Stream& stream);

// Which classes the columns of a slice's logits are: class first_class + j is column j, for
// j < slice_classes; the other columns are padding. A slice may be empty.
struct VocabularySlice {
  int64_t first_class = 0;
  int64_t slice_classes = 0;
};

// The slices' way is: each computes its statistics; (R, M) of them are gathered; all combine them;
// each turns its logits into gradients.
//
// row_max (M) = max of the slice's logits, -infinity for an empty slice; exp_sum (M) = sum of
// exp(logit - row_max); target_logit (M) = the target's logit, 0 where the target is -1 or in
// another slice. Targets are class numbers. Errors as CrossEntropy.
absl::Status CrossEntropyStatistics(const Tensor& logits, const Tensor& targets,
                                    int64_t num_classes, const VocabularySlice& slice,
                                    const Tensor& row_max, const Tensor& exp_sum,
                                    const Tensor& target_logit, Stream& stream);

// log_sum_exp (M) =, losses (M) = log_sum_exp - the target's logit, 0 where the target is -1, from
// all slices' statistics (R, M); sums over slices ascend, in fp64. Errors as CrossEntropy.
absl::Status CombineCrossEntropy(const Tensor& row_max, const Tensor& exp_sum,
                                 const Tensor& target_logit, const Tensor& targets,
                                 const Tensor& log_sum_exp, const Tensor& losses, Stream& stream);

// logits (M, columns) of a slice = gradient_scale * (exp(logits - log_sum_exp) - one_hot), rounded
// once; 0 in rows without a target and in padding columns. options.overwrite_logits is ignored.
// Errors as CrossEntropy.
absl::Status CrossEntropyGradient(const Tensor& logits, const Tensor& targets,
                                  const CrossEntropyOptions& options, const VocabularySlice& slice,
                                  const Tensor& log_sum_exp, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CROSS_ENTROPY_H_
