// Softmax cross-entropy, forward and backward in one pass over the logits.
//
// Legend: M rows (tokens), V classes, Vp >= V columns (padding columns never win and never count).
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
// where targets[i] is -1. targets (M) int32. With overwrite_logits, logits (M, Vp) fp32, rows at
// any stride, = gradient_scale * (softmax - one_hot); 0 in rows without a target and in columns >=
// V. Sums of a row are fp32 within 512 columns and fp64 over them. INVALID_ARGUMENT: shapes, dtypes
// or num_classes that do not fit, or a target outside [-1, V) (checked on CPU only); UNIMPLEMENTED:
// no such backend.
absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CROSS_ENTROPY_H_
