#include "storage/float_bits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

// The value of a 16-bit float by the definition of its fields.
double Value(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * INFINITY : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(1 + std::ldexp(fraction, -fraction_bits), exponent - bias);
}

struct Format {
  const char* name;
  int exponent_bits;
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);
};
constexpr Format kFormats[] = {
    {"bfloat16", 8, Bfloat16BitsToFloat, FloatToBfloat16Bits},
    {"float16", 5, Float16BitsToFloat, FloatToFloat16Bits},
};

TEST(FloatBits, AllValuesThereAndBack) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = format.to_float(bits);
      const double expected = Value(bits, format.exponent_bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(value)) << format.name << " " << bits;
        ASSERT_TRUE(std::isnan(format.to_float(format.from_float(value)))) << format.name << bits;
      } else {
        ASSERT_EQ(value, expected) << format.name << " " << bits;
        ASSERT_EQ(std::signbit(value), std::signbit(expected)) << format.name << " " << bits;
        ASSERT_EQ(format.from_float(value), bits) << format.name;
      }
    }
  }
}

// Between two neighbours: below, at and above the middle, which goes to the even one.
TEST(FloatBits, RoundsToNearestEven) {
  for (const Format& format : kFormats) {
    const uint16_t infinity = ((1 << format.exponent_bits) - 1) << (15 - format.exponent_bits);
    for (uint32_t low = 0; low + 1 < infinity; ++low) {
      const double a = Value(low, format.exponent_bits), b = Value(low + 1, format.exponent_bits);
      const auto middle = static_cast<float>((a + b) / 2);
      const float below = std::nextafter(middle, 0.0f), above = std::nextafter(middle, INFINITY);
      if (middle > 0 && below > a && above < b) {  // not so for bfloat16's subnormals' neighbours
        ASSERT_EQ(format.from_float(below), low) << format.name;
        ASSERT_EQ(format.from_float(above), low + 1) << format.name;
        ASSERT_EQ(format.from_float(-above), (low + 1) | 0x8000) << format.name;
      }
      ASSERT_EQ(format.from_float(middle), low % 2 == 0 ? low : low + 1) << format.name;
    }
    EXPECT_EQ(format.from_float(INFINITY), infinity);
    EXPECT_EQ(format.from_float(std::numeric_limits<float>::max()), infinity) << format.name;
  }
  EXPECT_EQ(FloatToFloat16Bits(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16Bits(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToFloat16Bits(0x1p-25f), 0);
  EXPECT_EQ(FloatToFloat16Bits(std::nextafter(0x1p-25f, 1.0f)), 1);
}

}  // namespace
}  // namespace tessera
