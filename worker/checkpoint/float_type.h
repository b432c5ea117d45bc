// Element types of weights in files, to and from fp32.
#ifndef TESSERA_WORKER_CHECKPOINT_FLOAT_TYPE_H_
#define TESSERA_WORKER_CHECKPOINT_FLOAT_TYPE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace tessera {

// values[i] = the i-th element of bytes, at any alignment.
// REQUIRES: kFloat32, kBFloat16 or kFloat16; bytes of values.size() elements.
void DecodeFloats(DType dtype, absl::Span<const uint8_t> bytes, absl::Span<float> values);

// The reverse, rounding to nearest even. REQUIRES: as above.
// OUT_OF_RANGE: a finite value that the dtype would make infinite, with its index.
absl::Status EncodeFloats(DType dtype, absl::Span<const float> values, absl::Span<uint8_t> bytes);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_FLOAT_TYPE_H_
