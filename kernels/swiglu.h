// SwiGLU without its products (Shazeer, arXiv 2002.05202, equation 5):
//   y = silu(gate) * up,  silu(x) = x / (1 + exp(-x)).
//
// Legend: M rows, F columns. One element type S (fp32, bf16, fp16). Every matrix may be a column
// view, so that gate and up may be the halves of one (M, 2F) matrix.
#ifndef TESSERA_KERNELS_SWIGLU_H_
#define TESSERA_KERNELS_SWIGLU_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output (M, F) = from gate (M, F) and up (M, F); output may be either. INVALID_ARGUMENT: shapes or
// dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status SwiGluForward(const Tensor& gate, const Tensor& up, const Tensor& output,
                           Stream& stream);

// d_gate (M, F) = d_output * up * silu'(gate), d_up (M, F) = d_output * silu(gate). Each may be
// gate's, up's or d_output's memory. Errors as SwiGluForward.
absl::Status SwiGluBackward(const Tensor& gate, const Tensor& up, const Tensor& d_output,
                            const Tensor& d_gate, const Tensor& d_up, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_SWIGLU_H_
