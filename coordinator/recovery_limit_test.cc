#include "coordinator/recovery_limit.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(RecoveryLimitTest, ThePauseDoublesFromTheSecondRecoveryOn) {
  const int seconds[] = {0, 0, 1, 2, 4, 8};
  for (int recoveries = 0; recoveries <= kMaxRecoveriesInARow; ++recoveries) {
    EXPECT_EQ(RecoveryPause(recoveries), absl::Seconds(seconds[recoveries])) << recoveries;
  }
}

TEST(RecoveryLimitTest, AFurtherStepCountsAnew) {
  struct Case {
    const char* name;
    v1::JobState state;
    std::optional<int64_t> resume_step;
    int64_t step;
    int recoveries;
    int expected;
  };
  constexpr v1::JobState kRecovering = v1::JOB_STATE_RECOVERING;
  constexpr v1::JobState kPending = v1::JOB_STATE_PENDING;
  const Case cases[] = {
      {"the first", kRecovering, std::nullopt, 9, 1, 1},
      {"a further step after none", kRecovering, std::nullopt, 1, 4, 1},
      {"the same step", kRecovering, 5, 5, 4, 4},
      {"a further step", kRecovering, 5, 6, 4, 1},
      {"an earlier step, as a disk was lost", kRecovering, 5, 4, 4, 4},
      {"nothing was lost, the same step", kPending, 5, 5, 4, 4},
      {"nothing was lost, a further step", kPending, 5, 6, 4, 0},
  };
  for (const Case& c : cases) {
    v1::TrainingJobStatus status;
    status.set_state(c.state);
    if (c.resume_step.has_value()) status.set_resume_step(*c.resume_step);
    status.set_recoveries_in_a_row(c.recoveries);
    EXPECT_EQ(RecoveriesInARow(status, c.step), c.expected) << c.name;
  }
}

TEST(RecoveryLimitTest, TheTextNamesTheLastLoss) {
  v1::TrainingJobStatus status;
  for (const char* message : {"an earlier one", "workers/w1 (global_rank 1) was lost: why"}) {
    v1::JobCondition& condition = *status.add_conditions();
    condition.set_state(v1::JOB_STATE_RECOVERING);
    condition.set_reason("WORKER_LOST");
    condition.set_message(message);
  }
  status.add_conditions()->set_state(v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(RecoveriesExhaustedText(status, 7),
            "5 recoveries in a row went on after step 7 and committed no further one; the last "
            "loss: workers/w1 (global_rank 1) was lost: why; what is committed is kept: find the "
            "cause, then resume the job");
  EXPECT_EQ(RecoveriesExhaustedText(status, std::nullopt).substr(0, 73),
            "5 recoveries in a row started from the beginning and committed no step; t");
}

}  // namespace
}  // namespace tessera
