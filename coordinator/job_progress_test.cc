#include "coordinator/job_progress.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

v1::StepReport Report(int64_t step, double loss) {
  v1::StepReport report;
  report.set_step(step);
  report.set_loss(loss);
  report.set_tokens(100);
  report.set_seconds(0.5);
  return report;
}

TEST(JobProgress, ShortRunsKeepEveryStep) {
  v1::JobProgress progress;
  progress.set_total_steps(20);
  for (int64_t step = 1; step <= 20; ++step) ApplyStepReport(Report(step, 1.0 / step), progress);
  EXPECT_EQ(progress.loss_curve_size(), 20);
  EXPECT_EQ(progress.step(), 20);
  EXPECT_EQ(progress.tokens_per_second(), 200);
}

TEST(JobProgress, LongRunsAreThinnedEvenlyAndKeepBothEnds) {
  v1::JobProgress progress;
  progress.set_total_steps(100001);
  for (int64_t step = 1; step <= 100001; ++step) ApplyStepReport(Report(step, 1), progress);
  EXPECT_LE(progress.loss_curve_size(), kMaxCurvePoints);
  EXPECT_GT(progress.loss_curve_size(), kMaxCurvePoints / 2);
  EXPECT_EQ(progress.loss_curve(0).step(), 1);
  EXPECT_EQ(progress.loss_curve().rbegin()->step(), 100001);
}

TEST(JobProgress, RepeatedReportsChangeNothing) {
  v1::JobProgress progress;
  progress.set_total_steps(20);
  v1::StepReport first = Report(0, 0);
  first.set_validation_loss(5);
  v1::StepReport second = Report(10, 2);
  second.set_validation_loss(3);
  for (const v1::StepReport& report : {first, second}) ApplyStepReport(report, progress);
  const std::string before = progress.SerializeAsString();
  for (const v1::StepReport& report : {first, second}) ApplyStepReport(report, progress);
  EXPECT_EQ(progress.SerializeAsString(), before);
  EXPECT_EQ(progress.first_validation_loss(), 5);
  EXPECT_EQ(progress.validation_loss(), 3);
}

TEST(JobProgress, TrafficIsThatOfTheNewestStep) {
  v1::JobProgress progress;
  progress.set_total_steps(20);
  v1::StepReport report = Report(2, 1);
  v1::GroupTraffic& traffic = *report.add_traffic();
  traffic.set_axis("tp");
  traffic.set_kind("all_reduce");
  traffic.set_calls(4);
  traffic.set_predicted_calls(5);
  ApplyStepReport(report, progress);
  ASSERT_EQ(progress.traffic_size(), 1);
  EXPECT_EQ(progress.traffic(0).axis(), "tp");
  EXPECT_EQ(progress.traffic(0).predicted_calls(), 5);
  report.set_step(1);  // late
  report.mutable_traffic(0)->set_calls(7);
  ApplyStepReport(report, progress);
  EXPECT_EQ(progress.traffic(0).calls(), 4);
  report.set_step(3);
  ApplyStepReport(report, progress);
  ASSERT_EQ(progress.traffic_size(), 1);
  EXPECT_EQ(progress.traffic(0).calls(), 7);
}

TEST(JobProgress, ManyValidationsAreThinned) {
  v1::JobProgress progress;
  progress.set_total_steps(5000);
  for (int64_t step = 0; step <= 5000; ++step) {
    v1::StepReport report = Report(step, 1);
    report.set_validation_loss(1);
    ApplyStepReport(report, progress);
  }
  EXPECT_LE(progress.validation_curve_size(), kMaxCurvePoints);
  EXPECT_EQ(progress.validation_curve(0).step(), 0);
}

TEST(JobProgress, TimeAndTierTrafficAreThoseOfTheNewestStep) {
  v1::JobProgress progress;
  progress.set_total_steps(20);
  v1::StepReport report = Report(1, 1);
  report.mutable_step_time()->set_tier_wait_seconds(0.25);
  report.add_tier_traffic()->set_tier("nvme");
  ApplyStepReport(report, progress);
  EXPECT_EQ(progress.step_time().tier_wait_seconds(), 0.25);
  ASSERT_EQ(progress.tier_traffic_size(), 1);
  ApplyStepReport(Report(2, 1), progress);
  EXPECT_FALSE(progress.has_step_time());
  EXPECT_EQ(progress.tier_traffic_size(), 0);
}

// Steps 1 .. 9, with validations at 0, 5 and 9.
v1::JobProgress NineSteps() {
  v1::JobProgress progress;
  progress.set_total_steps(20);
  for (int64_t step = 0; step <= 9; ++step) {
    v1::StepReport report = Report(step, 10.0 - static_cast<double>(step));
    if (step == 0 || step == 5 || step == 9) {
      report.set_validation_loss(20 - static_cast<double>(step));
    }
    ApplyStepReport(report, progress);
  }
  return progress;
}

TEST(JobProgress, RepeatedStepsAreReportedOnce) {
  v1::JobProgress progress = NineSteps();
  progress.set_seconds_left(7);
  RewindProgress(6, progress);
  EXPECT_EQ(progress.step(), 6);
  EXPECT_EQ(progress.loss(), 4);
  EXPECT_EQ(progress.validation_loss(), 15);
  EXPECT_EQ(progress.first_validation_loss(), 20);
  EXPECT_FALSE(progress.has_seconds_left());
  EXPECT_EQ(progress.loss_curve_size(), 6);
  EXPECT_EQ(progress.validation_curve_size(), 2);
  for (int64_t step = 7; step <= 9; ++step) {
    v1::StepReport report = Report(step, 10.0 - static_cast<double>(step));
    if (step == 9) report.set_validation_loss(11);
    ApplyStepReport(report, progress);
  }
  EXPECT_EQ(progress.SerializeAsString(), NineSteps().SerializeAsString());
}

TEST(JobProgress, IsAsBeforeTheFirstReportAfterAStartFromTheBeginning) {
  v1::JobProgress progress = NineSteps();
  RewindProgress(0, progress);
  EXPECT_EQ(progress.step(), 0);
  EXPECT_EQ(progress.loss(), 0);
  EXPECT_EQ(progress.total_steps(), 20);
  EXPECT_EQ(progress.validation_loss(), 20);
  EXPECT_EQ(progress.loss_curve_size(), 0);
}

// A restarted coordinator may have lost the newest reports.
TEST(JobProgress, GoesForwardToTheSavedStep) {
  v1::JobProgress progress = NineSteps();
  RewindProgress(12, progress);
  EXPECT_EQ(progress.step(), 12);
  EXPECT_EQ(progress.loss(), 1);
  EXPECT_EQ(progress.loss_curve_size(), 9);
}

}  // namespace
}  // namespace tessera
