// fp32 values of the host to and from tensors of any floating element type.
#ifndef TESSERA_KERNELS_FP32_COPY_H_
#define TESSERA_KERNELS_FP32_COPY_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// to (n), contiguous = values, rounded to nearest even where to is bf16 or fp16. Conversion is the
// device's, over at most 4 MiB of workspace at a time. INVALID_ARGUMENT: another number of values;
// RESOURCE_EXHAUSTED from the arena. Returns when the copy is done.
absl::Status CopyInFp32(absl::Span<const float> values, const Tensor& to, Stream& stream);

// values = from (n), contiguous. Otherwise as CopyInFp32.
absl::Status CopyOutFp32(const Tensor& from, absl::Span<float> values, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_FP32_COPY_H_
