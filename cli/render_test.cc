#include "cli/render.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cli/exit_code.h"
#include "cli/plot.h"
#include "cli/table.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

TEST(Table, AlignsColumnsWithoutTrailingSpaces) {
  Table table({"NAME", "X"});
  table.Add({"a", "1"});
  table.Add({"longer", "22"});
  EXPECT_EQ(table.ToString(), "NAME    X\na       1\nlonger  22\n");
}

TEST(Plot, PutsExtremesAtTheEdges) {
  const std::string plot = DrawPlot({{'*', "loss", {{0, 4}, {5, 3}, {10, 2}}}}, 11, 3);
  EXPECT_EQ(plot,
            "   4.000 |*          \n"
            "   3.000 |     *     \n"
            "   2.000 |          *\n"
            "         +-----------\n"
            "          0   step 10\n"
            "          * loss\n");
}

TEST(Plot, OnePointAndNonsense) {
  EXPECT_NE(DrawPlot({{'*', "", {{1, 1}}}}, 10, 4), "");
  EXPECT_EQ(DrawPlot({{'*', "", {{1, std::nan("")}}}}, 10, 4), "");
  EXPECT_EQ(DrawPlot({}, 10, 4), "");
}

TEST(Render, Units) {
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1234567), "1.23 MB");
  EXPECT_EQ(HumanSeconds(59), "59s");
  EXPECT_EQ(HumanSeconds(72), "1m12s");
  EXPECT_EQ(HumanSeconds(3 * 3600 + 61), "3h01m");
  EXPECT_EQ(Printable(std::string("a\n\0\xff", 4)), "a\n\\x00\\xff");
}

TEST(Render, ProgressTellsStepLossSpeedAndTimeLeft) {
  v1::TrainingJob job;
  job.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  v1::JobProgress& progress = *job.mutable_status()->mutable_progress();
  progress.set_step(120);
  progress.set_total_steps(1500);
  progress.set_loss(2.34567);
  progress.set_tokens_per_second(18200);
  progress.set_seconds_left(72);
  EXPECT_EQ(ProgressLine(job), "RUNNING    step 120/1500  loss 2.3457  18.2k tokens/s  1m12s left");
}

v1::TrainingJob JobIn(v1::JobState state, const char* reason = "") {
  v1::TrainingJob job;
  job.set_name("trainingJobs/a");
  job.mutable_status()->set_state(state);
  v1::JobCondition& condition = *job.mutable_status()->add_conditions();
  condition.set_state(state);
  condition.set_reason(reason);
  return job;
}

TEST(Render, ProgressTellsWhyAJobWaitsAndHowItGoesOn) {
  EXPECT_EQ(ProgressLine(JobIn(v1::JOB_STATE_SUSPENDED, "TIER_FAILED")),
            "SUSPENDED  step 0/0  TIER_FAILED; to go on: tessera resume a");
  EXPECT_EQ(ProgressLine(JobIn(v1::JOB_STATE_RECOVERING, "WAITING_FOR_STATE")),
            "RECOVERING step 0/0  WAITING_FOR_STATE");
  EXPECT_EQ(ProgressLine(JobIn(v1::JOB_STATE_SUSPENDING, "SUSPEND_REQUESTED")),
            "SUSPENDING step 0/0");
}

TEST(Render, AnswersTellWhatIsDoneAndWhatIsUnderWay) {
  EXPECT_EQ(SuspendAnswer(JobIn(v1::JOB_STATE_ADMITTED)), "trainingJobs/a is being suspended\n");
  EXPECT_EQ(SuspendAnswer(JobIn(v1::JOB_STATE_SUSPENDED)), "trainingJobs/a is SUSPENDED\n");
  EXPECT_EQ(ResumeAnswer(JobIn(v1::JOB_STATE_PENDING)), "trainingJobs/a is PENDING\n");
  EXPECT_EQ(ResumeAnswer(JobIn(v1::JOB_STATE_SUSPENDING)),
            "trainingJobs/a is SUSPENDING; it goes on as soon as it is suspended\n");
  EXPECT_EQ(CancelAnswer(JobIn(v1::JOB_STATE_RUNNING)), "trainingJobs/a is being cancelled\n");
  EXPECT_EQ(CancelAnswer(JobIn(v1::JOB_STATE_CANCELLED)), "trainingJobs/a is CANCELLED\n");
}

TEST(Render, WideWorkersTellTheirTiers) {
  v1::Worker worker;
  worker.set_name("workers/w0");
  worker.set_host_memory_bytes(2000000);
  worker.set_host_memory_used_bytes(1000000);
  worker.set_host_memory_pinned(true);
  worker.set_nvme_free_bytes(5000000000);
  worker.set_nvme_used_bytes(7);
  const std::string text = WorkerTable({worker}, /*wide=*/true);
  EXPECT_NE(text.find("HOST MEMORY  USED  NVME FREE  USED"), std::string::npos) << text;
  EXPECT_NE(text.find("2 MB pinned  1 MB  5 GB       7 B"), std::string::npos) << text;
  EXPECT_EQ(WorkerTable({worker}, /*wide=*/false).find("NVME"), std::string::npos);
}

TEST(Render, PlacementTellsTierAndVersion) {
  v1::Placement placement;
  placement.set_state(v1::JOB_STATE_RUNNING);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankDetail& detail = *placement.add_ranks();
    detail.mutable_coordinates()->set_global_rank(rank);
    for (const char* kind : {"parameters", "optimizer"}) {
      v1::ShardPlacement& shard = *detail.add_shards();
      shard.set_unit("head");
      shard.set_kind(kind);
      shard.set_size_elements(10);
      shard.set_size_bytes(40);
      shard.set_tier(rank == 1 && std::string(kind) == "optimizer" ? "nvme" : "device");
      shard.set_version(7);
    }
  }
  const std::string text = PlacementTable(placement, /*wide=*/true);
  EXPECT_NE(text.find("40 B        0 B        40 B       device                             7\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("optimizer nvme, parameters device  7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1     head  optimizer   [0, 10)   40 B   nvme    7\n"), std::string::npos)
      << text;
}

TEST(Render, DescribeTellsTheSavedStepAndThePriority) {
  v1::TrainingJob job = JobIn(v1::JOB_STATE_PENDING);
  EXPECT_EQ(DescribeJob(job, false).find("Priority"), std::string::npos);
  job.mutable_status()->set_saved_step(5);
  job.mutable_spec()->set_priority(3);
  job.mutable_spec()->set_preempt(true);
  const std::string text = DescribeJob(job, false);
  EXPECT_NE(text.find("Saved step         5, on the nvme tiers of its workers\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Priority           3, preempts\n"), std::string::npos) << text;
}

TEST(ExitCode, FollowsTheCanonicalCode) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::UnimplementedError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 4);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 5);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 6);
}

TEST(ExitCode, ErrorsTellCodeReasonSubjectAndWhatNext) {
  const std::string text = ErrorText(InvalidField("spec.steps", "0", "must be positive"), "here");
  EXPECT_EQ(text,
            "error: INVALID_ARGUMENT (INVALID_FIELD): spec.steps: 0: must be positive\n"
            "hint: `tessera explain spec.steps` tells what the field may be\n");
}

}  // namespace
}  // namespace tessera
