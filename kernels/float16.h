// The two 16-bit element types as bits, and their conversions. Plain C++, for single elements and
// tests; kernels/cpu/vector-inl.h has the same arithmetic for vectors.
#ifndef TESSERA_KERNELS_FLOAT16_H_
#define TESSERA_KERNELS_FLOAT16_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera {

// The upper half of an IEEE 754 binary32: 8 bits of exponent, 7 of fraction.
struct BFloat16 {
  uint16_t bits;
};

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
struct Float16 {
  uint16_t bits;
};

inline float ToFloat(float value) { return value; }

inline float ToFloat(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline float ToFloat(Float16 value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
  // Exponent and fraction moved into place are the value times 2^-112, subnormals included.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const uint32_t bits =
      rest > 0x7bffu ? (rest << 13) | 0x7f800000u : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

// Rounds to nearest, ties to even; NaN stays NaN; beyond the largest finite value is infinity.
inline void FromFloat(float value, float* to) { *to = value; }

inline void FromFloat(float value, BFloat16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded =
      std::isnan(value) ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to->bits = static_cast<uint16_t>(rounded);
}

inline void FromFloat(float value, Float16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;
  } else if (magnitude > 0x477fefffu) {  // 65520 and above
    result = 0x7c00u;
  } else if (magnitude < 113u << 23) {
    // Below 2^-14: adding 0.5 aligns the fraction at 2^-24, and the addition rounds.
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
             std::bit_cast<uint32_t>(0.5f);
  } else {
    // Rebias the exponent by -112; round half to even at bit 13.
    result = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  to->bits = static_cast<uint16_t>(result | sign);
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_FLOAT16_H_
