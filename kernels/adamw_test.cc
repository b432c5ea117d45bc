#include "kernels/adamw.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class AdamWTest : public KernelTest {};

// Against algorithm 2 in fp64, restarted from the kernel's own state each step: one step has about
// ten roundings of an update of size learning_rate, and two of the parameter.
TEST_P(AdamWTest, FiveStepsAgainstFp64) {
  for (const auto& [n, dtype] : {std::pair{1, DType::kFloat32},
                                 {7, DType::kBFloat16},
                                 {1000, DType::kFloat16},
                                 {20011, DType::kFloat32},
                                 {20011, DType::kBFloat16}}) {
    const Tensor parameter = Put(Random(n), {n}), exp_avg = Put(std::vector<float>(n), {n});
    const Tensor exp_avg_sq = Put(std::vector<float>(n), {n});
    AdamWOptions options;
    options.learning_rate = 0.01;
    options.beta1 = 0.9;
    options.beta2 = 0.99;
    options.epsilon = 1e-6;
    options.weight_decay = 0.1;
    options.gradient_scale = 0.25;
    for (options.step = 1; options.step <= 5; ++options.step) {
      const std::vector<float> p = Get(parameter), m = Get(exp_avg), v = Get(exp_avg_sq);
      const std::vector<float> gradient = RandomOf(dtype, n);
      ASSERT_TRUE(
          AdamW(parameter, Put(gradient, {n}, dtype), exp_avg, exp_avg_sq, options, *stream_).ok());
      const std::vector<float> p2 = Get(parameter), m2 = Get(exp_avg), v2 = Get(exp_avg_sq);
      for (int64_t i = 0; i < n; ++i) {
        const double g = 0.25 * gradient[i];
        const double new_m = 0.9 * m[i] + 0.1 * g, new_v = 0.99 * v[i] + 0.01 * g * g;
        const double m_hat = new_m / (1 - std::pow(0.9, options.step));
        const double v_hat = new_v / (1 - std::pow(0.99, options.step));
        const double new_p = p[i] * (1 - 0.01 * 0.1) - 0.01 * m_hat / (std::sqrt(v_hat) + 1e-6);
        ASSERT_NEAR(m2[i], new_m, 4 * kUnitRoundoff * (std::abs(0.9 * m[i]) + std::abs(0.1 * g)));
        ASSERT_NEAR(v2[i], new_v, 6 * kUnitRoundoff * new_v);
        ASSERT_NEAR(p2[i], new_p, 3 * kUnitRoundoff * std::abs(p[i]) + 20 * kUnitRoundoff * 0.05);
      }
    }
  }
}

TEST_P(AdamWTest, WritesTheRoundedParameter) {
  const int64_t n = 20011;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Tensor parameter = Put(Random(n), {n}), zero = Put(std::vector<float>(n), {n});
    AdamWOptions options;
    options.learning_rate = 0.01;
    options.low_precision_parameter = New({n}, dtype);
    ASSERT_TRUE(AdamW(parameter, Put(Random(n), {n}), zero, Put(std::vector<float>(n), {n}),
                      options, *stream_)
                    .ok());
    std::vector<float> rounded = Get(parameter);
    for (float& value : rounded) value = RoundTo(dtype, value);
    EXPECT_EQ(Get(options.low_precision_parameter), rounded) << DTypeName(dtype);
  }
}

// Any shard of a buffer updates to the bits it has in the whole.
TEST_P(AdamWTest, ShardsEqualTheWhole) {
  const int64_t n = 1003, cut = 321;
  const std::vector<float> p = Random(n), g = Random(n), zero(n);
  const Tensor whole = Put(p, {n}), parts = Put(p, {n}), gradient = Put(g, {n});
  const Tensor m1 = Put(zero, {n}), v1 = Put(zero, {n}), m2 = Put(zero, {n}), v2 = Put(zero, {n});
  AdamWOptions options;
  options.learning_rate = 0.01;
  ASSERT_TRUE(AdamW(whole, gradient, m1, v1, options, *stream_).ok());
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, cut}, {cut, n - cut}}) {
    ASSERT_TRUE(AdamW(parts.Slice(begin, count), gradient.Slice(begin, count),
                      m2.Slice(begin, count), v2.Slice(begin, count), options, *stream_)
                    .ok());
  }
  EXPECT_EQ(Get(whole), Get(parts));
  EXPECT_EQ(Get(m1), Get(m2));
  EXPECT_EQ(Get(v1), Get(v2));
}

TEST_P(AdamWTest, RefusesWhatDoesNotFit) {
  const Tensor a = New({4});
  EXPECT_EQ(AdamW(a, New({5}), a, a, {}, *stream_).code(), absl::StatusCode::kInvalidArgument);
  AdamWOptions options;
  options.step = 0;
  EXPECT_EQ(AdamW(a, a, a, a, options, *stream_).code(), absl::StatusCode::kInvalidArgument);
  options.step = 1;
  options.low_precision_parameter = New({4});
  EXPECT_EQ(AdamW(a, a, a, a, options, *stream_).code(), absl::StatusCode::kInvalidArgument);
  options.low_precision_parameter = New({5}, DType::kBFloat16);
  EXPECT_EQ(AdamW(a, a, a, a, options, *stream_).code(), absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(AdamWTest);

}  // namespace
}  // namespace tessera
