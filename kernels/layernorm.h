// LayerNorm over the last dim (Ba, Kiros, Hinton, arXiv 1607.06450, equation 4):
//   y = (x - mean(x)) * rstd * weight + bias,  rstd = 1 / sqrt(var(x) + epsilon), var biased.
//
// Legend: M rows, C channels. Activations, weight and bias of one element type S (fp32, bf16,
// fp16); mean and rstd fp32; d_weight and d_bias both S or both fp32. Contiguous.
#ifndef TESSERA_KERNELS_LAYERNORM_H_
#define TESSERA_KERNELS_LAYERNORM_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output (M, C) =, mean (M) =, rstd (M) = from input (M, C), weight (C), bias (C).
// INVALID_ARGUMENT: shapes or dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, Stream& stream);

// d_input (M, C) = the gradient, or addend + the gradient where addend (M, C) is not null (the
// residual branch); d_input may be d_output's or addend's memory. d_weight (C) +=, d_bias (C) +=.
// d_output (M, C), input, mean and rstd as in forward. Errors as LayerNormForward.
absl::Status LayerNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                               const Tensor& d_input, const Tensor& d_weight, const Tensor& d_bias,
                               Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_LAYERNORM_H_
