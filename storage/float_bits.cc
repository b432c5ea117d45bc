#include "storage/float_bits.h"

#include <bit>

namespace tessera {
namespace {

constexpr uint32_t kSignificandMask = 0x7fffff;  // of a float
constexpr int kFloatBias = 127, kHalfBias = 15;

// bits / 2^shift, to nearest even. REQUIRES: 1 <= shift <= 31.
uint32_t RoundShift(uint32_t bits, int shift) {
  const uint32_t half = uint32_t{1} << (shift - 1);
  const uint32_t rest = bits & (2 * half - 1);
  const uint32_t down = bits >> shift;
  return down + (rest > half || (rest == half && (down & 1) != 0) ? 1 : 0);
}

}  // namespace

float Bfloat16BitsToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float Float16BitsToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in a float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t float_exponent = exponent == 0x1f ? 0xff : exponent - kHalfBias + kFloatBias;
  return std::bit_cast<float>(sign | float_exponent << 23 | fraction << 13);
}

uint16_t FloatToBfloat16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>(
      RoundShift(bits, 16));  // a carry goes into the exponent, as it should
}

uint16_t FloatToFloat16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (value != value) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  const int exponent = static_cast<int>(magnitude >> 23) - kFloatBias + kHalfBias;
  if (exponent >= 0x1f) return static_cast<uint16_t>(sign | 0x7c00);
  if (exponent >= 1) {
    const uint32_t rebased = magnitude - (uint32_t{kFloatBias - kHalfBias} << 23);
    return static_cast<uint16_t>(sign | RoundShift(rebased, 13));
  }
  if (exponent < -10) return static_cast<uint16_t>(sign);  // below half of the smallest subnormal
  return static_cast<uint16_t>(
      sign | RoundShift((magnitude & kSignificandMask) | (kSignificandMask + 1), 14 - exponent));
}

}  // namespace tessera
