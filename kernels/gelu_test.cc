#include "kernels/gelu.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class GeluTest : public KernelTest {};

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double GeluSlope(double x) {
  const double k = std::sqrt(2 / M_PI), u = k * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

std::vector<float> Inputs(DType dtype) {
  std::vector<float> x = {0, -0.0f, 1e-30f, -1e-30f, 20, -20, 1e4f, -1e4f};
  for (int i = 0; i < 10007; ++i) x.push_back(-8 + 16.0f * i / 10006);
  for (float& value : x) value = RoundTo(dtype, value);
  return x;
}

// Forward: u errs by 3 * 2^-24 |u|, so exp(-2u) by 6 * 2^-24 |u| relatively, which counts only
// where it is not small against 1, or where |u| is large and the result tiny: below 2e-7 |x|
// everywhere.
TEST_P(GeluTest, ForwardAgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    const std::vector<float> x = Inputs(dtype);
    const int64_t n = x.size();
    const Tensor output = New({n}, dtype);
    ASSERT_TRUE(GeluForward(Put(x, {n}, dtype), output, *stream_).ok());
    const std::vector<float> result = Get(output);
    for (int64_t i = 0; i < n; ++i) {
      const double expected = Gelu(x[i]);
      ASSERT_NEAR(result[i], expected, 2e-7 * std::abs(x[i]) + 1e-38 + StoreError(dtype, expected))
          << DTypeName(dtype) << " " << x[i];
    }
  }
}

TEST_P(GeluTest, BackwardAgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    const std::vector<float> x = Inputs(dtype), dy = RandomOf(dtype, x.size());
    const int64_t n = x.size();
    const Tensor gradient = Put(dy, {n}, dtype);  // in place
    ASSERT_TRUE(GeluBackward(Put(x, {n}, dtype), gradient, gradient, *stream_).ok());
    const std::vector<float> result = Get(gradient);
    for (int64_t i = 0; i < n; ++i) {
      // The slope is at most 1.13, each of its two terms errs by about 8 * 2^-24 = 5e-7.
      const double expected = dy[i] * GeluSlope(x[i]);
      ASSERT_NEAR(result[i], expected, 1e-6 * std::abs(dy[i]) + StoreError(dtype, expected))
          << DTypeName(dtype) << " " << x[i];
    }
  }
}

TEST_P(GeluTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(GeluForward(New({3}), New({4}), *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GeluForward(New({3}), New({3}, DType::kBFloat16), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  const Tensor ids = New({3}, DType::kInt32);
  EXPECT_EQ(GeluForward(ids, ids, *stream_).code(), absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(GeluTest);

}  // namespace
}  // namespace tessera
