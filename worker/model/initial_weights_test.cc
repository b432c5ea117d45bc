#include "worker/model/initial_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera {
namespace {

ParameterSpec Spec(const char* name) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = Shape{100000};
  spec.standard_deviation = 0.02;
  return spec;
}

std::vector<float> Fill(const char* name, uint64_t seed, int64_t begin, int64_t count) {
  std::vector<float> values(count);
  FillInitialValues(Spec(name), seed, begin, absl::MakeSpan(values));
  return values;
}

TEST(InitialWeights, AnyPartEqualsTheWhole) {
  const std::vector<float> whole = Fill("a", 1, 0, 1000);
  for (const int64_t begin : {0, 1, 7, 500, 998}) {
    const std::vector<float> part = Fill("a", 1, begin, 1000 - begin);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

TEST(InitialWeights, DependOnSeedAndName) {
  EXPECT_NE(Fill("a", 1, 0, 8), Fill("a", 2, 0, 8));
  EXPECT_NE(Fill("a", 1, 0, 8), Fill("b", 1, 0, 8));
}

// 100000 draws: mean within 4 sigma / sqrt(n), variance within 4 sqrt(2 / n), kurtosis within
// 4 sqrt(24 / n).
TEST(InitialWeights, MomentsOfANormal) {
  const std::vector<float> values = Fill("wte.weight", 42, 0, 100000);
  double mean = 0, second = 0, fourth = 0;
  for (const float value : values) {
    const double x = value / 0.02;
    mean += x / 1e5;
    second += x * x / 1e5;
    fourth += x * x * x * x / 1e5;
  }
  EXPECT_NEAR(mean, 0, 4 / std::sqrt(1e5));
  EXPECT_NEAR(second, 1, 4 * std::sqrt(2 / 1e5));
  EXPECT_NEAR(fourth, 3, 4 * std::sqrt(24 / 1e5) * 2);
}

}  // namespace
}  // namespace tessera
