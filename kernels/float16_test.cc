#include "kernels/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

template <typename T>
class Float16Test : public testing::Test {};

struct Bf16 {
  using Type = BFloat16;
  static constexpr int kFractionBits = 7, kMinExponent = -126, kMaxExponent = 127;
};
struct Fp16 {
  using Type = Float16;
  static constexpr int kFractionBits = 10, kMinExponent = -14, kMaxExponent = 15;
};
using Formats = testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(Float16Test, Formats);

// An element's value by the definition of IEEE 754, not by moving bits.
template <typename Format>
double Value(uint32_t bits) {
  const int fraction = bits & ((1 << Format::kFractionBits) - 1);
  const int exponent = (bits & 0x7fff) >> Format::kFractionBits;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == Format::kMaxExponent - Format::kMinExponent + 2) {
    return fraction == 0 ? sign * HUGE_VAL : NAN;
  }
  const double significand = std::ldexp(fraction, -Format::kFractionBits) + (exponent == 0 ? 0 : 1);
  return sign * std::ldexp(significand, std::max(exponent, 1) + Format::kMinExponent - 1);
}

template <typename S>
uint16_t Rounded(float value) {
  S element;
  FromFloat(value, &element);
  return element.bits;
}

TYPED_TEST(Float16Test, EveryElementIsItsValue) {
  using S = typename TypeParam::Type;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = Value<TypeParam>(bits);
    const float value = ToFloat(S{static_cast<uint16_t>(bits)});
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(ToFloat(S{Rounded<S>(value)}))) << bits;
      continue;
    }
    EXPECT_EQ(value, expected) << bits;
    EXPECT_EQ(Rounded<S>(value), bits);
  }
}

// Halfway between neighbours goes to the even one, anything else to the nearer.
TYPED_TEST(Float16Test, RoundsToNearestEven) {
  using S = typename TypeParam::Type;
  const uint32_t infinity = (TypeParam::kMaxExponent - TypeParam::kMinExponent + 2)
                            << TypeParam::kFractionBits;
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    // Exact: fp32 has more bits of fraction.
    const float middle =
        static_cast<float>((Value<TypeParam>(bits) + Value<TypeParam>(bits + 1)) / 2);
    EXPECT_EQ(Rounded<S>(middle), bits + bits % 2) << bits;
    EXPECT_EQ(Rounded<S>(std::nextafterf(middle, 0)), bits);
    EXPECT_EQ(Rounded<S>(std::nextafterf(middle, HUGE_VALF)), bits + 1);
    EXPECT_EQ(Rounded<S>(-middle), (bits + bits % 2) | 0x8000);
  }
}

TYPED_TEST(Float16Test, OverflowIsInfinity) {
  using S = typename TypeParam::Type;
  EXPECT_EQ(ToFloat(S{Rounded<S>(std::numeric_limits<float>::max())}), HUGE_VALF);
  EXPECT_EQ(ToFloat(S{Rounded<S>(-HUGE_VALF)}), -HUGE_VALF);
}

}  // namespace
}  // namespace tessera
