#include "worker/trainer/learning_rate.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

struct Case {
  const char* name;
  LearningRateSchedule schedule;
  int64_t step;
  double expected;
};

class LearningRate : public testing::TestWithParam<Case> {};

TEST_P(LearningRate, Table) {
  EXPECT_NEAR(LearningRateAt(GetParam().schedule, GetParam().step), GetParam().expected, 1e-12);
}

constexpr LearningRateSchedule kCosine = {1.0, 0.1, 10, 110, true};
constexpr LearningRateSchedule kConstant = {1.0, 0.1, 10, 110, false};

INSTANTIATE_TEST_SUITE_P(
    Cases, LearningRate,
    testing::Values(Case{"FirstWarmup", kCosine, 1, 0.1}, Case{"LastWarmup", kCosine, 10, 1.0},
                    Case{"Quarter", kCosine, 35, 0.1 + 0.9 * 0.8535533905932737},
                    Case{"Half", kCosine, 60, 0.55}, Case{"Last", kCosine, 110, 0.1},
                    Case{"Constant", kConstant, 110, 1.0},
                    Case{"NoWarmup", {2.0, 0.0, 0, 4, true}, 2, 1.0},
                    Case{"OneStep", {2.0, 0.5, 0, 1, true}, 1, 0.5},
                    Case{"WarmupOnly", {2.0, 0.5, 4, 4, true}, 4, 2.0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
