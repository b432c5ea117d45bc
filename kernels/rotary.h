// Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864, section 3.4), half-split as
// Hugging Face's Llama: element j of a head's first half and element j of its second half are
// rotated by the angle position * inv_freq[j], inv_freq[j] = theta^(-2j / H) in fp32.
//
// Legend: T rows of a sequence, M = B*T rows, n heads of H (even) channels.
#ifndef TESSERA_KERNELS_ROTARY_H_
#define TESSERA_KERNELS_ROTARY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Llama 3.1's scaling of frequencies ("rope_type": "llama3"). With wavelength w = 2 pi / inv_freq:
//   w > original_length / low_frequency_factor: inv_freq / factor
//   w < original_length / high_frequency_factor: inv_freq
//   otherwise, s = (original_length / w - low) / (high - low): (1 - s) inv_freq / factor + s
//   inv_freq
struct Llama3RotaryScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_length = 8192;
};

struct RotaryOptions {
  double theta = 10000;
  std::optional<Llama3RotaryScaling> scaling;
};

// table (T, H) fp32 =, contiguous: row t is cos of H/2 angles, then sin of them, for position
// positions[t], positions (T) int32, or first_position + t where positions is null. Angles are fp32
// products. INVALID_ARGUMENT: shapes, dtypes or options that do not fit; UNIMPLEMENTED: no such
// backend.
absl::Status RotaryTable(const RotaryOptions& options, int64_t first_position,
                         const Tensor& positions, const Tensor& table, Stream& stream);

// x (M, n*H) rotated in place, with row i % T of table (T, H): with c, s the row's halves,
//   x1' = x1 c - x2 s,  x2' = x2 c + x1 s;
// with inverse by the opposite angles, which is the gradient's way back. x is fp32, bf16 or fp16
// and may be a column view: q and k that lie side by side are one call. T divides M. Errors as
// RotaryTable.
absl::Status Rotary(const Tensor& table, bool inverse, const Tensor& x, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_ROTARY_H_
