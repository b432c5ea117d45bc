#include "worker/checkpoint/float_type.h"

#include <bit>
#include <cmath>

#include "absl/base/internal/endian.h"
#include "absl/strings/str_cat.h"
#include "storage/float_bits.h"

namespace tessera {

void DecodeFloats(DType dtype, absl::Span<const uint8_t> bytes, absl::Span<float> values) {
  const uint8_t* at = bytes.data();
  switch (dtype) {
    case DType::kBFloat16:
      for (float& value : values) {
        value = Bfloat16BitsToFloat(absl::little_endian::Load16(at));
        at += 2;
      }
      break;
    case DType::kFloat16:
      for (float& value : values) {
        value = Float16BitsToFloat(absl::little_endian::Load16(at));
        at += 2;
      }
      break;
    default:
      for (float& value : values) {
        value = std::bit_cast<float>(absl::little_endian::Load32(at));
        at += 4;
      }
  }
}

absl::Status EncodeFloats(DType dtype, absl::Span<const float> values, absl::Span<uint8_t> bytes) {
  uint8_t* at = bytes.data();
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kFloat32) {
      absl::little_endian::Store32(at, std::bit_cast<uint32_t>(values[i]));
      at += 4;
      continue;
    }
    const bool bfloat = dtype == DType::kBFloat16;
    const uint16_t bits = bfloat ? FloatToBfloat16Bits(values[i]) : FloatToFloat16Bits(values[i]);
    const float stored = bfloat ? Bfloat16BitsToFloat(bits) : Float16BitsToFloat(bits);
    if (std::isinf(stored) && std::isfinite(values[i])) {
      return absl::OutOfRangeError(absl::StrCat("element ", i, " is ", values[i],
                                                ", beyond the largest ", DTypeName(dtype)));
    }
    absl::little_endian::Store16(at, bits);
    at += 2;
  }
  return absl::OkStatus();
}

}  // namespace tessera
