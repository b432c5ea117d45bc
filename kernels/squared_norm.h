// Sum of squares of a vector.
#ifndef TESSERA_KERNELS_SQUARED_NORM_H_
#define TESSERA_KERNELS_SQUARED_NORM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Elements whose squares are summed in fp32 lanes before the block's sum is added in fp64.
inline constexpr int64_t kSquaredNormBlock = 4096;

// output (1) fp32 = sum of input[i]^2; input (n) fp32, bf16 or fp16, contiguous. An element that is
// infinite or NaN makes the sum so, so a finite sum says that all elements are finite; it is
// infinite as well where squares overflow fp32, above 1.8e19. Blocks are added in ascending
// order, so the result depends on n alone, not on threads. INVALID_ARGUMENT: shapes or dtypes;
// UNIMPLEMENTED: no such backend.
absl::Status SquaredNorm(const Tensor& input, const Tensor& output, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_SQUARED_NORM_H_
