// Sums and products element by element. One element type (fp32, bf16, fp16), contiguous, equal
// shapes; one rounding each.
#ifndef TESSERA_KERNELS_ELEMENTWISE_H_
#define TESSERA_KERNELS_ELEMENTWISE_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output = a + b; output may be a or b. INVALID_ARGUMENT: shapes or dtypes that do not fit;
// UNIMPLEMENTED: no such backend.
absl::Status Add(const Tensor& a, const Tensor& b, const Tensor& output, Stream& stream);

// tensor = factor * tensor. Errors as Add.
absl::Status Scale(const Tensor& tensor, float factor, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_ELEMENTWISE_H_
