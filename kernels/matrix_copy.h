// Matrices whose rows lie at any stride: copied, and added to.
#ifndef TESSERA_KERNELS_MATRIX_COPY_H_
#define TESSERA_KERNELS_MATRIX_COPY_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// to (M, N) = from (M, N), which do not overlap, each at any row stride. Of one dtype, any; or of
// two floating ones, then rounded as kernels/cast.h does. M or N may be 0. INVALID_ARGUMENT: shapes
// or dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status CopyMatrix(const Tensor& from, const Tensor& to, Stream& stream);

// sum (M, N) fp32 += input (M, N) fp32, bf16 or fp16, each at any row stride. M or N may be 0.
// Errors as CopyMatrix.
absl::Status AddInto(const Tensor& input, const Tensor& sum, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_MATRIX_COPY_H_
