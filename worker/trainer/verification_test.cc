#include "worker/trainer/verification.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

constexpr VerificationTolerance kTolerance{
    .loss = 1e-3, .norm = 1e-2, .parameter = 0.1, .gradient = 0.01};

TrainingRecord Record() {
  TrainingRecord record;
  for (int64_t step = 1; step <= 2; ++step) {
    StepResult result;
    result.step = step;
    result.loss = 4;
    result.gradient_norm = 2;
    result.learning_rate = 0.5;
    record.steps.push_back(result);
  }
  record.parameters = {{"a", {1, 2}, {3, 4}}, {"b", {1, 2, 3}, {0.1f, 0.2f, 0.3f}}};
  return record;
}

TEST(CompareTraining, EqualRunsPass) {
  const v1::VerificationReport report = CompareTraining(kTolerance, Record(), Record());
  EXPECT_TRUE(report.passed());
  EXPECT_FALSE(report.has_first_beyond());
  ASSERT_EQ(report.steps_size(), 2);
  EXPECT_TRUE(report.steps(0).passed());
  EXPECT_EQ(report.largest_parameter().deviation(), 0);
}

TEST(CompareTraining, ALossOrANormBeyondItsToleranceFails) {
  TrainingRecord layout = Record();
  layout.steps[1].loss = 4.005;
  v1::VerificationReport report = CompareTraining(kTolerance, layout, Record());
  EXPECT_FALSE(report.passed());
  EXPECT_TRUE(report.steps(0).passed());
  EXPECT_FALSE(report.steps(1).passed());
  layout = Record();
  layout.steps[0].gradient_norm = std::nan("");
  report = CompareTraining(kTolerance, layout, Record());
  EXPECT_FALSE(report.passed());
  EXPECT_FALSE(report.steps(0).passed());
}

TEST(CompareTraining, NamesTheLargestAndTheFirst) {
  TrainingRecord layout = Record();
  layout.parameters[0].exp_avg[1] *= 1.05f;  // rms 0.141 of 3.54: 0.04
  layout.parameters[1].exp_avg = {0.2f, 0.4f, 0.6f};
  layout.parameters[1].values[2] += 0.5f;
  const v1::VerificationReport report = CompareTraining(kTolerance, layout, Record());
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.largest_parameter().name(), "b");
  EXPECT_NEAR(report.largest_parameter().deviation(), 0.5 / std::sqrt(3.0), 1e-6);
  EXPECT_EQ(report.largest_gradient().name(), "b");
  EXPECT_NEAR(report.largest_gradient().deviation(), 1, 1e-6);
  EXPECT_EQ(report.first_beyond().name(), "a");
  EXPECT_EQ(report.first_beyond().kind(), "gradient");
}

TEST(CompareTraining, NothingButRoundingIsHeldAgainstTheOtherGradients) {
  TrainingRecord one = Record(), layout = Record();
  one.parameters[1].exp_avg = {1e-9f, -1e-9f, 0};
  layout.parameters[1].exp_avg = {-1e-9f, 1e-9f, 0};
  EXPECT_TRUE(CompareTraining(kTolerance, layout, one).passed());
}

TEST(CompareTraining, WhatIsNotANumberIsBeyond) {
  TrainingRecord layout = Record();
  layout.parameters[0].values[0] = std::nanf("");
  const v1::VerificationReport report = CompareTraining(kTolerance, layout, Record());
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.first_beyond().name(), "a");
  EXPECT_EQ(report.largest_parameter().name(), "a");
}

}  // namespace
}  // namespace tessera
