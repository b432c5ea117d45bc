// RMSNorm over the last dim (Zhang and Sennrich, arXiv 1910.07467, equation 4), rounded as Hugging
// Face's Llama does:
//   y = S(S(x * rstd) * weight),  rstd = 1 / sqrt(mean(x^2) + epsilon) in fp32.
//
// Legend: M rows, C channels. Activations and weight of one element type S (fp32, bf16, fp16);
// rstd fp32; d_weight S or fp32. Contiguous.
#ifndef TESSERA_KERNELS_RMSNORM_H_
#define TESSERA_KERNELS_RMSNORM_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output (M, C) =, rstd (M) = from input (M, C), weight (C).
// INVALID_ARGUMENT: shapes or dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status RmsNormForward(const Tensor& input, const Tensor& weight, float epsilon,
                            const Tensor& output, const Tensor& rstd, Stream& stream);

// d_input (M, C) = the gradient, or addend + the gradient where addend (M, C) is not null (the
// residual branch); d_input may be d_output's or addend's memory. d_weight (C) +=. The gradient is
// that of the formula without its roundings, but d_weight's factor of d_output is S(x * rstd).
// d_output (M, C), input and rstd as in forward. Errors as RmsNormForward.
absl::Status RmsNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                             const Tensor& rstd, const Tensor& addend, const Tensor& d_input,
                             const Tensor& d_weight, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_RMSNORM_H_
