#include "kernels/rmsnorm.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class RmsNormTest : public KernelTest {};

struct Sizes {
  int64_t rows, channels;
};
constexpr Sizes kSizes[] = {{1, 1}, {3, 2}, {37, 24}, {130, 129}, {2, 1031}};
constexpr double kEpsilon = 1e-5;

// The mean of C squares in at least four lanes errs by (C / 4 + 4) u, rstd by half of that, and
// there are four roundings.
double Tolerance(int64_t channels) { return (channels / 8.0 + 8) * kUnitRoundoff; }

double ReferenceLoss(const std::vector<double>& x, const std::vector<double>& weight,
                     const std::vector<float>& dy, int64_t m, int64_t n,
                     std::vector<double>* y = nullptr) {
  double loss = 0;
  for (int64_t i = 0; i < m; ++i) {
    double mean = 0;
    for (int64_t c = 0; c < n; ++c) mean += x[i * n + c] * x[i * n + c] / n;
    for (int64_t c = 0; c < n; ++c) {
      const double out = x[i * n + c] / std::sqrt(mean + kEpsilon) * weight[c];
      if (y != nullptr) (*y)[i * n + c] = out;
      loss += out * dy[i * n + c];
    }
  }
  return loss;
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Two roundings to the element type: the normalised value, and the result.
TEST_P(RmsNormTest, ForwardAgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [m, n] : kSizes) {
      const std::vector<float> x = RandomOf(dtype, m * n, 2, 1), weight = RandomOf(dtype, n, 1, 1);
      const Tensor output = New({m, n}, dtype);
      ASSERT_TRUE(RmsNormForward(Put(x, {m, n}, dtype), Put(weight, {n}, dtype), kEpsilon, output,
                                 New({m}), *stream_)
                      .ok());
      std::vector<double> expected(m * n);
      ReferenceLoss(Wide(x), Wide(weight), std::vector<float>(m * n), m, n, &expected);
      const std::vector<float> result = Get(output);
      for (int64_t i = 0; i < m * n; ++i) {
        const double size = std::abs(expected[i]);
        const double normal = std::abs(expected[i] / weight[i % n]);
        ASSERT_NEAR(result[i], expected[i],
                    Tolerance(n) * size + 1.01 * StoreError(dtype, expected[i]) +
                        1.01 * StoreError(dtype, normal) * std::abs(weight[i % n]))
            << DTypeName(dtype) << " " << i << " of " << m << " x " << n;
      }
    }
  }
}

// The weight is multiplied by the rounded value: Hugging Face's order, which differs from one
// rounding at the end.
TEST_P(RmsNormTest, RoundsBeforeTheWeight) {
  const int64_t n = 1000;
  const std::vector<float> x = RandomOf(DType::kBFloat16, n), weight(n, 1.5f);
  const Tensor output = New({1, n}, DType::kBFloat16), rstd = New({1});
  ASSERT_TRUE(RmsNormForward(Put(x, {1, n}, DType::kBFloat16), Put(weight, {n}, DType::kBFloat16),
                             kEpsilon, output, rstd, *stream_)
                  .ok());
  std::vector<float> expected(n);
  for (int64_t i = 0; i < n; ++i) {
    const float normal = RoundTo(DType::kBFloat16, x[i] * Get(rstd)[0]);
    expected[i] = RoundTo(DType::kBFloat16, normal * 1.5f);
  }
  EXPECT_EQ(Get(output), expected);
}

// Central differences as in the suite of LayerNorm. Rows of two channels have rstd up to about 100,
// which multiplies fp32's roundings: 2e-5. d_weight's terms hold rounded values: sum |dy xhat| u.
TEST_P(RmsNormTest, BackwardAgainstFiniteDifferences) {
  for (const auto& [dtype, sums] : kAccumulations) {
    for (const auto& [m, n] : {Sizes{3, 2}, Sizes{5, 7}, Sizes{4, 33}}) {
      const std::vector<float> x = RandomOf(dtype, m * n), weight = RandomOf(dtype, n, 0.5, 1);
      const std::vector<float> dy = RandomOf(dtype, m * n), add = RandomOf(dtype, m * n);
      const std::vector<float> before = RandomOf(sums, n);
      const Tensor input = Put(x, {m, n}, dtype), rstd = New({m});
      const Tensor weights = Put(weight, {n}, dtype);
      ASSERT_TRUE(
          RmsNormForward(input, weights, kEpsilon, New({m, n}, dtype), rstd, *stream_).ok());
      const Tensor d_input = Put(add, {m, n}, dtype);  // addend and output at once
      const Tensor d_weight = Put(before, {n}, sums);
      ASSERT_TRUE(RmsNormBackward(Put(dy, {m, n}, dtype), input, weights, rstd, d_input, d_input,
                                  d_weight, *stream_)
                      .ok());
      std::vector<double> wide[2] = {Wide(x), Wide(weight)};
      const std::vector<float> results[2] = {Get(d_input), Get(d_weight)};
      for (int which = 0; which < 2; ++which) {
        for (size_t i = 0; i < wide[which].size(); ++i) {
          constexpr double h = 1e-5;
          const double saved = wide[which][i];
          wide[which][i] = saved + h;
          const double up = ReferenceLoss(wide[0], wide[1], dy, m, n);
          wide[which][i] = saved - h;
          const double down = ReferenceLoss(wide[0], wide[1], dy, m, n);
          wide[which][i] = saved;
          const double expected = (up - down) / (2 * h) + (which == 0 ? add[i] : before[i]);
          double rounded = StoreError(which == 0 ? dtype : sums, expected);
          for (int64_t row = 0; row < m && which == 1; ++row) {
            const double normal = x[row * n + i] * static_cast<double>(Get(rstd)[row]);
            rounded += std::abs(dy[row * n + i]) * StoreError(dtype, normal);
          }
          ASSERT_NEAR(results[which][i], expected, 2e-5 * (1 + std::abs(expected)) + 1.01 * rounded)
              << DTypeName(dtype) << " " << which << " " << i << " of " << m << " x " << n;
        }
      }
    }
  }
}

TEST_P(RmsNormTest, RefusesWhatDoesNotFit) {
  const Tensor x = New({2, 4}), c = New({4}), m = New({2});
  EXPECT_EQ(RmsNormForward(x, New({3}), 1e-5f, New({2, 4}), m, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RmsNormForward(x, New({4}, DType::kBFloat16), 1e-5f, New({2, 4}), m, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  // fp32 operands add to fp32 gradients only.
  EXPECT_EQ(RmsNormBackward(x, x, c, m, Tensor(), x, New({4}, DType::kBFloat16), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(RmsNormTest);

}  // namespace
}  // namespace tessera
