#include "kernels/layernorm.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class LayerNormTest : public KernelTest {};

struct Sizes {
  int64_t rows, channels;
};
constexpr Sizes kSizes[] = {{1, 1}, {3, 2}, {37, 24}, {130, 129}, {2, 1031}};
constexpr double kEpsilon = 1e-5;

// Sums of C terms in at least four lanes err by at most (C / 4 + 4) u relative to the sum of
// magnitudes; mean, variance and the products after them multiply that by a small constant.
double Tolerance(int64_t channels) { return 4 * (channels / 4.0 + 8) * kUnitRoundoff; }

double ReferenceLoss(const std::vector<double>& x, const std::vector<double>& weight,
                     const std::vector<double>& bias, const std::vector<float>& dy, int64_t m,
                     int64_t n, std::vector<double>* y = nullptr) {
  double loss = 0;
  for (int64_t i = 0; i < m; ++i) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < n; ++c) mean += x[i * n + c] / n;
    for (int64_t c = 0; c < n; ++c) variance += (x[i * n + c] - mean) * (x[i * n + c] - mean) / n;
    for (int64_t c = 0; c < n; ++c) {
      const double out =
          (x[i * n + c] - mean) / std::sqrt(variance + kEpsilon) * weight[c] + bias[c];
      if (y != nullptr) (*y)[i * n + c] = out;
      loss += out * dy[i * n + c];
    }
  }
  return loss;
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST_P(LayerNormTest, ForwardAgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [m, n] : kSizes) {
      // A mean far from 0 would show a one-pass variance.
      const std::vector<float> x = RandomOf(dtype, m * n, 2, 5);
      const std::vector<float> weight = RandomOf(dtype, n, 1, 1), bias = RandomOf(dtype, n);
      const Tensor output = New({m, n}, dtype);
      ASSERT_TRUE(LayerNormForward(Put(x, {m, n}, dtype), Put(weight, {n}, dtype),
                                   Put(bias, {n}, dtype), kEpsilon, output, New({m}), New({m}),
                                   *stream_)
                      .ok());
      std::vector<double> expected(m * n);
      ReferenceLoss(Wide(x), Wide(weight), Wide(bias), std::vector<float>(m * n), m, n, &expected);
      const std::vector<float> result = Get(output);
      for (int64_t i = 0; i < m * n; ++i) {
        // x and the mean are about 5, their difference is exact to 5 u.
        ASSERT_NEAR(result[i], expected[i],
                    Tolerance(n) * (5 + std::abs(expected[i]) + std::abs(weight[i % n])) +
                        StoreError(dtype, expected[i]))
            << DTypeName(dtype);
      }
    }
  }
}

// Central differences of the fp64 reference, step h: error h^2 times third derivatives plus
// 2^-53 |loss| / h, below 1e-7 at h = 1e-5 here.
TEST_P(LayerNormTest, BackwardAgainstFiniteDifferences) {
  for (const auto& [dtype, sums] : kAccumulations) {
    for (const auto& [m, n] : {Sizes{3, 2}, Sizes{5, 7}, Sizes{4, 33}}) {
      const std::vector<float> x = RandomOf(dtype, m * n), weight = RandomOf(dtype, n, 0.5, 1);
      const std::vector<float> bias = RandomOf(dtype, n), dy = RandomOf(dtype, m * n);
      const std::vector<float> add = RandomOf(dtype, m * n), before = RandomOf(sums, n);
      const Tensor input = Put(x, {m, n}, dtype), mean = New({m}), rstd = New({m});
      const Tensor weights = Put(weight, {n}, dtype);
      ASSERT_TRUE(LayerNormForward(input, weights, Put(bias, {n}, dtype), kEpsilon,
                                   New({m, n}, dtype), mean, rstd, *stream_)
                      .ok());
      const Tensor d_input = Put(add, {m, n}, dtype);  // addend and output at once
      const Tensor d_weight = Put(before, {n}, sums), d_bias = Put(before, {n}, sums);
      ASSERT_TRUE(LayerNormBackward(Put(dy, {m, n}, dtype), input, weights, mean, rstd, d_input,
                                    d_input, d_weight, d_bias, *stream_)
                      .ok());
      std::vector<double> wide[3] = {Wide(x), Wide(weight), Wide(bias)};
      const std::vector<float> results[3] = {Get(d_input), Get(d_weight), Get(d_bias)};
      for (int which = 0; which < 3; ++which) {
        for (size_t i = 0; i < wide[which].size(); ++i) {
          constexpr double h = 1e-5;
          const double saved = wide[which][i];
          wide[which][i] = saved + h;
          const double up = ReferenceLoss(wide[0], wide[1], wide[2], dy, m, n);
          wide[which][i] = saved - h;
          const double down = ReferenceLoss(wide[0], wide[1], wide[2], dy, m, n);
          wide[which][i] = saved;
          const double expected = (up - down) / (2 * h) + (which == 0 ? add[i] : before[i]);
          // Rows of two channels have rstd up to about 100, which multiplies every rounding.
          ASSERT_NEAR(
              results[which][i], expected,
              2e-5 * (1 + std::abs(expected)) + StoreError(which == 0 ? dtype : sums, expected))
              << DTypeName(dtype) << " " << which << " " << i << " of " << m << " x " << n;
        }
      }
    }
  }
}

TEST_P(LayerNormTest, RefusesWhatDoesNotFit) {
  const Tensor x = New({2, 4}), c = New({4}), m = New({2});
  EXPECT_EQ(LayerNormForward(x, New({3}), c, 1e-5f, New({2, 4}), m, m, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LayerNormBackward(x, x, c, m, m, New({3, 4}), New({2, 4}), c, c, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(LayerNormTest);

}  // namespace
}  // namespace tessera
