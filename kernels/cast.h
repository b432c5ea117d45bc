// Conversion between element types.
#ifndef TESSERA_KERNELS_CAST_H_
#define TESSERA_KERNELS_CAST_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output = input in output's dtype, same shape, contiguous; each of the two fp32, bf16 or fp16.
// Rounds to nearest even; NaN stays NaN; beyond fp16's largest value is infinity. The two do not
// overlap. INVALID_ARGUMENT: shapes or dtypes that do not fit; UNIMPLEMENTED: no such backend.
absl::Status Cast(const Tensor& input, const Tensor& output, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CAST_H_
