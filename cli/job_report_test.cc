#include "cli/job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/render.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::Not;

void AddTraffic(const char* axis, const char* kind, int64_t calls, int64_t bytes,
                v1::JobProgress& progress) {
  v1::GroupTraffic& traffic = *progress.add_traffic();
  traffic.set_axis(axis);
  traffic.set_kind(kind);
  traffic.set_calls(calls);
  traffic.set_bytes(bytes);
  traffic.set_predicted_calls(calls);
  traffic.set_predicted_bytes(bytes);
}

// Two steps on pp=2, tp=2, all within tolerances.
v1::TrainingJob Verified() {
  v1::TrainingJob job;
  job.mutable_spec()->mutable_mesh()->set_pp(2);
  job.mutable_spec()->mutable_mesh()->set_tp(2);
  job.mutable_spec()->mutable_batch()->set_micro_batches(4);
  v1::VerificationReport& report = *job.mutable_status()->mutable_verification();
  report.set_passed(true);
  for (int i = 1; i <= 2; ++i) {
    v1::VerifiedStep& step = *report.add_steps();
    step.set_step(i);
    step.set_loss(5);
    step.set_one_rank_loss(i == 1 ? 5 : 5.00001);
    step.set_gradient_norm(0.25);
    step.set_one_rank_gradient_norm(0.25);
    step.set_loss_tolerance(1e-5);
    step.set_gradient_norm_tolerance(1e-4);
    step.set_passed(true);
  }
  v1::VerifiedTensor& parameter = *report.mutable_largest_parameter();
  parameter.set_name("h.0.attn.c_attn.weight");
  parameter.set_kind("parameter");
  parameter.set_deviation(2e-6);
  parameter.set_tolerance(1e-3);
  v1::VerifiedTensor& gradient = *report.mutable_largest_gradient();
  gradient.set_name("wte.weight");
  gradient.set_kind("gradient");
  gradient.set_deviation(1e-7);
  gradient.set_tolerance(1e-4);
  return job;
}

TEST(TrafficTable, TellsEqualFromDifferent) {
  v1::JobProgress progress;
  EXPECT_EQ(TrafficTable(progress), "");
  AddTraffic("pp", "send", 5, 1234567, progress);
  AddTraffic("tp", "all_reduce", 12, 640, progress);
  progress.mutable_traffic(1)->set_predicted_calls(14);
  progress.mutable_traffic(1)->set_predicted_bytes(600);
  EXPECT_EQ(TrafficTable(progress),
            "AXIS  COLLECTIVE  CALLS  BYTES              PREDICTED CALLS  PREDICTED BYTES    "
            "RESULT\n"
            "pp    send        5      1.23 MB (1234567)  5                1.23 MB (1234567)  "
            "equal\n"
            "tp    all_reduce  12     640 B              14               600 B              "
            "-2 calls, +40 bytes\n");
}

TEST(StepTimeTable, SplitsTheStep) {
  v1::JobProgress progress;
  EXPECT_EQ(StepTimeTable(progress), "");
  progress.mutable_step_time()->set_seconds(2);
  progress.mutable_step_time()->set_communication_seconds(0.5);
  progress.mutable_step_time()->set_tier_wait_seconds(0.25);
  EXPECT_EQ(StepTimeTable(progress),
            "PART               SECONDS  SHARE\n"
            "computation        1.25     62.5%\n"
            "communication      0.5      25.0%\n"
            "waiting for tiers  0.25     12.5%\n"
            "step               2        100.0%\n");
}

TEST(TierTrafficTable, HasALineForEachTier) {
  v1::JobProgress progress;
  EXPECT_EQ(TierTrafficTable(progress), "");
  v1::TierTraffic& traffic = *progress.add_tier_traffic();
  traffic.set_tier("nvme");
  traffic.set_read_bytes(1234567);
  traffic.set_written_bytes(640);
  traffic.set_late_reads(3);
  EXPECT_EQ(TierTrafficTable(progress),
            "TIER  READ               WRITTEN  LATE READS\n"
            "nvme  1.23 MB (1234567)  640 B    3\n");
}

TEST(VerificationText, Passed) {
  EXPECT_EQ(VerificationText(Verified()),
            "Layout   dp=1 cp=1 pp=2 tp=2 (axes outermost first), 4 ranks, 1f1b, 4 micro-batches\n"
            "Against  one rank with the same model, seeds and data; differences are relative\n"
            "\n"
            "STEP  LOSS      ONE RANK  DIFFERENCE  ALLOWED  GRADIENT NORM  ONE RANK  DIFFERENCE  "
            "ALLOWED  RESULT\n"
            "1     5.000000  5.000000  0.0e+00     1.0e-05  0.25           0.25      0.0e+00     "
            "1.0e-04  ok\n"
            "2     5.000000  5.000010  2.0e-06     1.0e-05  0.25           0.25      0.0e+00     "
            "1.0e-04  ok\n"
            "\n"
            "LARGEST DEVIATION       OF         DEVIATION  ALLOWED  RESULT\n"
            "h.0.attn.c_attn.weight  parameter  2.0e-06    1.0e-03  ok\n"
            "wte.weight              gradient   1.0e-07    1.0e-04  ok\n"
            "\n"
            "First tensor beyond its tolerance, in forward order: none\n"
            "PASSED: the layout computes what one rank does\n");
}

TEST(VerificationText, ADifferenceNamesStepsAndTensor) {
  v1::TrainingJob job = Verified();
  v1::VerificationReport& report = *job.mutable_status()->mutable_verification();
  report.set_passed(false);
  report.mutable_steps(1)->set_passed(false);
  report.mutable_largest_gradient()->set_deviation(0.5);
  *report.mutable_first_beyond() = report.largest_gradient();
  const std::string text = VerificationText(job);
  EXPECT_THAT(text, HasSubstr("1.0e-04  DIFFERS\n\nLARGEST"));
  EXPECT_THAT(text, HasSubstr("wte.weight              gradient   5.0e-01    1.0e-04  DIFFERS\n"));
  EXPECT_THAT(text, HasSubstr("in forward order: wte.weight (gradient): 5.0e-01, allowed 1.0e-04\n"
                              "DIFFERS from one rank in step 2; look at wte.weight\n"));
  // Every loss is as it should be, one tensor is not.
  report.mutable_steps(1)->set_passed(true);
  EXPECT_THAT(VerificationText(job), HasSubstr("DIFFERS from one rank in wte.weight\n"));
}

TEST(VerificationText, WhatIsNotANumberIsShown) {
  v1::TrainingJob job = Verified();
  job.mutable_status()->mutable_verification()->mutable_steps(0)->set_loss(
      std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(VerificationText(job), HasSubstr("\n1     nan       5.000000  nan "));
}

TEST(DescribeJob, ShowsTrafficAndReport) {
  v1::TrainingJob job = Verified();
  EXPECT_THAT(DescribeJob(job, false), HasSubstr("\nVerification\nLayout   dp=1 cp=1 pp=2 tp=2"));
  EXPECT_THAT(DescribeJob(job, false), Not(HasSubstr("Traffic")));
  AddTraffic("tp", "all_reduce", 12, 640, *job.mutable_status()->mutable_progress());
  job.mutable_status()->clear_verification();
  EXPECT_THAT(DescribeJob(job, false),
              HasSubstr("\nTraffic of global_rank 0 in the last step\nAXIS  "));
  EXPECT_THAT(DescribeJob(job, false), Not(HasSubstr("Verification")));
}

}  // namespace
}  // namespace tessera
