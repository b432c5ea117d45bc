#include "coordinator/resume_decision.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

using Kind = ResumeDecision::Kind;

StateHolder Holder(int rank, std::vector<int64_t> steps) {
  return {.worker = "workers/w" + std::to_string(rank),
          .global_rank = rank,
          .unknown = "",
          .busy_with = "",
          .damage = "",
          .steps = std::move(steps)};
}

StateHolder Absent(int rank, std::vector<int64_t> steps = {}) {
  StateHolder holder = Holder(rank, std::move(steps));
  holder.unknown = "is not attached";
  return holder;
}

StateHolder Damaged(int rank) {
  StateHolder holder = Holder(rank, {});
  holder.damage = "MANIFEST: bad checksum";
  return holder;
}

StateHolder Busy(int rank, std::vector<int64_t> steps) {
  StateHolder holder = Holder(rank, std::move(steps));
  holder.busy_with = "trainingJobs/b";
  return holder;
}

TEST(ResumeDecision, StatusTellsOfCommittedSteps) {
  v1::TrainingJob job;
  v1::TrainingJobStatus& status = *job.mutable_status();
  EXPECT_EQ(KnownCommittedStep(job), std::nullopt);
  status.mutable_progress()->set_step(9);
  EXPECT_EQ(KnownCommittedStep(job), std::nullopt) << "nothing is committed of such a job";
  job.mutable_spec()->mutable_offload()->mutable_optimizer()->set_tier(v1::TIER_NVME);
  EXPECT_EQ(KnownCommittedStep(job), 8);
  status.mutable_progress()->set_step(1);
  EXPECT_EQ(KnownCommittedStep(job), std::nullopt);
  status.set_resume_step(5);
  EXPECT_EQ(KnownCommittedStep(job), 5);
  status.set_saved_step(7);
  EXPECT_EQ(KnownCommittedStep(job), 7);
}

TEST(ResumeDecision, IsTheLargestStepThatAllHold) {
  struct Case {
    const char* name;
    std::vector<StateHolder> holders;
    std::optional<int64_t> saved_step;
    Kind kind;
    int64_t step;
    const char* message;
  };
  const Case cases[] = {
      {"suspended", {Holder(0, {5}), Holder(1, {5})}, 5, Kind::kResume, 5, ""},
      {"killed_between_commits", {Holder(0, {4, 5}), Holder(1, {5, 6})}, {}, Kind::kResume, 5, ""},
      {"both", {Holder(0, {4, 5}), Holder(1, {4, 5})}, {}, Kind::kResume, 5, ""},
      {"before_the_first_step", {Holder(0, {0}), Holder(1, {0})}, {}, Kind::kResume, 0, ""},
      {"never_committed", {Holder(0, {}), Holder(1, {})}, {}, Kind::kStartOver, 0, ""},
      {"first_commit_half_done", {Holder(0, {1}), Holder(1, {})}, {}, Kind::kStartOver, 0, ""},
      {"first_commit_after_a_start", {Holder(0, {1}), Holder(1, {0})}, {}, Kind::kStartOver, 0, ""},
      {"disk_lost",
       {Holder(0, {4, 5}), Holder(1, {})},
       {},
       Kind::kWaitForState,
       0,
       "workers/w1 (global_rank 1) holds no state of it"},
      {"damaged",
       {Holder(0, {1}), Damaged(1)},
       {},
       Kind::kWaitForState,
       0,
       "workers/w1 (global_rank 1) holds damaged state: MANIFEST: bad checksum"},
      {"disk_lost_of_a_saved_job",
       {Holder(0, {1}), Holder(1, {})},
       1,
       Kind::kWaitForState,
       0,
       "workers/w1 (global_rank 1) holds no state of it"},
      {"disks_lost_of_a_saved_job",
       {Holder(0, {})},
       5,
       Kind::kWaitForState,
       0,
       "workers/w0 (global_rank 0) holds no state of it"},
      {"nothing_in_common",
       {Holder(0, {4, 5}), Holder(1, {7})},
       {},
       Kind::kWaitForState,
       0,
       "no step is held by all: workers/w0 (global_rank 0) holds that after step 4 and 5; "
       "workers/w1 (global_rank 1) holds that after step 7"},
      {"absent",
       {Holder(0, {5}), Absent(1, {5})},
       5,
       Kind::kWaitForState,
       0,
       "workers/w1 (global_rank 1) is not attached"},
      // What the absent one holds is not known.
      {"absent_and_empty",
       {Holder(0, {}), Absent(1)},
       {},
       Kind::kWaitForState,
       0,
       "workers/w1 (global_rank 1) is not attached"},
      {"busy",
       {Busy(0, {5}), Holder(1, {5})},
       5,
       Kind::kWaitForWorkers,
       5,
       "workers/w0 (global_rank 0) runs trainingJobs/b"},
      {"busy_without_state",
       {Busy(0, {}), Holder(1, {5})},
       5,
       Kind::kWaitForState,
       0,
       "workers/w0 (global_rank 0) holds no state of it"},
      {"many",
       {Absent(0), Absent(1), Absent(2), Absent(3), Absent(4), Absent(5)},
       5,
       Kind::kWaitForState,
       0,
       "workers/w0 (global_rank 0) is not attached; workers/w1 (global_rank 1) is not attached; "
       "workers/w2 (global_rank 2) is not attached; workers/w3 (global_rank 3) is not attached; "
       "and 2 more"},
  };
  for (const Case& c : cases) {
    const ResumeDecision decision = DecideResume(c.holders, c.saved_step);
    EXPECT_EQ(decision.kind, c.kind) << c.name << " " << decision.message;
    EXPECT_EQ(decision.step, c.step) << c.name;
    EXPECT_EQ(decision.message, c.message) << c.name;
  }
}

}  // namespace
}  // namespace tessera
