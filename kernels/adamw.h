// AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, without
// a schedule multiplier of its own; bias correction as Kingma and Ba, arXiv 1412.6980, algorithm
// 1).
#ifndef TESSERA_KERNELS_ADAMW_H_
#define TESSERA_KERNELS_ADAMW_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct AdamWOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;           // t, from 1
  double gradient_scale = 1;  // factor of the gradient: the clipping coefficient
  // (n) bf16 or fp16, contiguous: = parameter, rounded to nearest even. Null: none.
  Tensor low_precision_parameter;
};

// With g = gradient_scale * gradient:
//   exp_avg = beta1 * exp_avg + (1 - beta1) * g
//   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g^2
//   parameter = (1 - learning_rate * weight_decay) * parameter
//       - learning_rate * (exp_avg / (1 - beta1^t)) / (sqrt(exp_avg_sq / (1 - beta2^t)) + epsilon)
// All (n), contiguous, fp32, but gradient may be bf16 or fp16; it is only read. Element-wise, so a
// shard updates to the same bits as the whole. INVALID_ARGUMENT: shapes, dtypes or step < 1;
// UNIMPLEMENTED: no such backend.
absl::Status AdamW(const Tensor& parameter, const Tensor& gradient, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const AdamWOptions& options, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_ADAMW_H_
