#include "kernels/cast.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class CastTest : public KernelTest {};

// What conversions get wrong: ties, subnormals, overflow, signs, NaN; then ordinary values.
std::vector<float> Inputs(std::vector<float> ordinary) {
  for (const float value : {0.0f,
                            -0.0f,
                            1.00390625f,
                            1.01171875f,
                            1.00048828125f,
                            1.00146484375f,
                            65504.0f,
                            65519.0f,
                            65520.0f,
                            -65520.0f,
                            3.3e38f,
                            3.4e38f,
                            6e-8f,
                            2.9802322e-8f,
                            2.9802326e-8f,
                            8.9406967e-8f,
                            6.1e-5f,
                            1e-40f,
                            1e-45f,
                            HUGE_VALF,
                            -HUGE_VALF,
                            NAN,
                            -NAN,
                            std::bit_cast<float>(0x7f800001u),
                            std::bit_cast<float>(0x7fffffffu)}) {
    ordinary.push_back(value);
  }
  return ordinary;
}

// To the bits that the conversions of single elements give; those are tested against their
// definition.
TEST_P(CastTest, AllPairs) {
  const std::vector<float> values = Inputs(Random(20000, 100));
  const int64_t n = values.size();
  for (const DType from : kFloatTypes) {
    for (const DType to : kFloatTypes) {
      const Tensor output = New({n}, to);
      ASSERT_TRUE(Cast(Put(values, {n}, from), output, *stream_).ok());
      const std::vector<float> result = Get(output);
      for (int64_t i = 0; i < n; ++i) {
        const float expected = RoundTo(to, RoundTo(from, values[i]));
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(result[i])) << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(result[i]), std::bit_cast<uint32_t>(expected))
              << DTypeName(from) << " to " << DTypeName(to) << " " << values[i];
        }
      }
    }
  }
}

TEST_P(CastTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Cast(New({3}), New({4}, DType::kBFloat16), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Cast(New({3}), New({3}, DType::kInt32), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(CastTest);

}  // namespace
}  // namespace tessera
