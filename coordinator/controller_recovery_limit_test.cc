// Jobs that lose their workers again and again without getting any further.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/committing_job_testing.h"
#include "coordinator/recovery_limit.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr auto kRun = v1::CoordinatorMessage::kRun;

class ControllerRecoveryLimitTest : public CommittingJobTest {
 protected:
  static v1::WorkerMessage Heartbeat() {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_nvme_free_bytes(int64_t{1} << 40);
    return message;
  }
  // w1 is killed and is back at once; both hold these steps.
  void Crash(const std::vector<int64_t>& steps) {
    controller_->HandleWorkerMessage(w0_.id, Heartbeat());
    Lose(w1_);
    Ended(w0_, absl::AbortedError("aborted"), steps);
    std::vector<v1::SavedState> saved;
    if (!steps.empty()) saved.push_back(Saved(uid_, 1, steps));
    w1_ = AttachAgain("w1", saved);
  }
  // Crashes so many times in a row, and waits for each recovery.
  void CrashAndRecover(int times, const std::vector<int64_t>& steps) {
    for (int i = 0; i < times; ++i) {
      Crash(steps);
      Advance(absl::Seconds(9));
      ASSERT_EQ(State("a"), v1::JOB_STATE_ADMITTED) << i;
      Formed(w0_);
      Formed(w1_);
      ASSERT_EQ(State("a"), v1::JOB_STATE_RUNNING) << i;
    }
  }
};

TEST_F(ControllerRecoveryLimitTest, AJobThatGetsNoFurtherIsSuspendedAndAPersonCanResumeIt) {
  Run();
  CrashAndRecover(kMaxRecoveriesInARow, {5});
  EXPECT_EQ(Status("a").recoveries_in_a_row(), kMaxRecoveriesInARow);
  Crash({5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(LastCondition("a").reason(), "RECOVERIES_EXHAUSTED");
  EXPECT_THAT(LastCondition("a").message(),
              HasSubstr("5 recoveries in a row went on after step 5 and committed no further one; "
                        "the last loss: workers/w1 (global_rank 1) was lost: "));
  EXPECT_EQ(Status("a").saved_step(), 5);
  EXPECT_FALSE(Status("a").has_error());
  EXPECT_FALSE(Status("a").suspend_requested());
  EXPECT_EQ(Count(w0_, v1::CoordinatorMessage::kDiscardState), 0);
  EXPECT_EQ(controller_->ListWorkers({})->workers(0).state(), v1::WORKER_STATE_IDLE);
  Advance(absl::Seconds(60));
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);

  w0_ = AttachAgain("w0", {Saved(uid_, 0, {5})});
  w1_ = AttachAgain("w1", {Saved(uid_, 1, {5})});
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1_.session->Last(kRun).run().resume_step(), 5);
  Formed(w0_);
  Formed(w1_);
  // With as many attempts as before.
  CrashAndRecover(kMaxRecoveriesInARow, {5});
  Crash({5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
}

TEST_F(ControllerRecoveryLimitTest, TheLossNamesWhatWasPending) {
  Run();
  CrashAndRecover(kMaxRecoveriesInARow, {5});
  v1::WorkerMessage heartbeat = Heartbeat();
  v1::PendingCollective& pending = *heartbeat.mutable_heartbeat()->mutable_pending();
  pending.set_group("dp[cp=0,pp=0,tp=0]");
  pending.set_operation("all_reduce");
  pending.set_sequence(7);
  pending.set_step(6);
  controller_->HandleWorkerMessage(w1_.id, heartbeat);
  Crash({5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_THAT(LastCondition("a").message(),
              HasSubstr("group dp[cp=0,pp=0,tp=0], all_reduce #7 of 0 bytes in step 6"));
}

TEST_F(ControllerRecoveryLimitTest, OneCommittedStepIsEnoughToGoOn) {
  Run();
  for (int64_t step = 1; step <= 20; ++step) {
    CrashAndRecover(2, {step});
    EXPECT_EQ(Status("a").recoveries_in_a_row(), 2);
    EXPECT_EQ(Status("a").resume_step(), step);
  }
}

TEST_F(ControllerRecoveryLimitTest, ThePausesGrow) {
  Run();
  CrashAndRecover(1, {5});
  // The first one came at once.
  const v1::TrainingJobStatus first = Status("a");
  for (const v1::JobCondition& condition : first.conditions()) {
    EXPECT_NE(condition.reason(), "WAITING_TO_RECOVER");
  }
  for (const int seconds : {1, 2, 4, 8}) {
    Crash({5});
    EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
    EXPECT_EQ(LastCondition("a").reason(), "WAITING_TO_RECOVER");
    EXPECT_THAT(LastCondition("a").message(),
                HasSubstr(absl::StrCat(" in a row begins ", seconds, "s after the loss")));
    const int64_t revision = Status("a").revision();
    Advance(absl::Seconds(seconds) - absl::Milliseconds(1));
    EXPECT_EQ(Status("a").revision(), revision);
    Advance(absl::Milliseconds(1));
    ASSERT_EQ(State("a"), v1::JOB_STATE_ADMITTED) << seconds;
    Formed(w0_);
    Formed(w1_);
  }
}

// It would have to wait for one of them otherwise.
TEST_F(ControllerRecoveryLimitTest, ItKeepsItsWorkersWhileItPauses) {
  Run();
  CrashAndRecover(2, {5});
  Crash({5});
  CreateChecked(Request("b", 1), {w0_, w1_});
  EXPECT_EQ(State("b"), v1::JOB_STATE_PENDING);
  Advance(absl::Seconds(2));
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerRecoveryLimitTest, ARestartOfTheCoordinatorIsNoNewBeginning) {
  Run();
  for (int i = 0; i <= kMaxRecoveriesInARow; ++i) {
    ASSERT_EQ(State("a"), v1::JOB_STATE_RUNNING);
    Restart();
    w0_ = AttachAgain("w0", {Saved(uid_, 0, {5})});
    w1_ = AttachAgain("w1", {Saved(uid_, 1, {5})});
    EXPECT_EQ(Status("a").recoveries_in_a_row(), i + 1);
    Advance(absl::Seconds(9));
    if (i == kMaxRecoveriesInARow) break;
    Formed(w0_);
    Formed(w1_);
  }
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("the last loss: workers/w"));
}

TEST_F(ControllerRecoveryLimitTest, AJobThatNeverCommitsIsSuspendedToo) {
  Run();
  CrashAndRecover(kMaxRecoveriesInARow, {});
  Crash({});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_THAT(LastCondition("a").message(),
              HasSubstr("5 recoveries in a row started from the beginning and committed no step"));
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_FALSE(w1_.session->Last(kRun).run().has_resume_step());
}

// As when all are given a new version, one after another, within a long step.
TEST_F(ControllerRecoveryLimitTest, WorkersThatAreAskedToStopDoNotCount) {
  Run();
  for (int i = 0; i < 2 * kMaxRecoveriesInARow; ++i) {
    AskToStop(w1_);
    Ended(w1_, absl::CancelledError("workers/w1 was asked to stop"), {5});
    Ended(w0_, absl::AbortedError("aborted"), {5});
    ASSERT_EQ(State("a"), v1::JOB_STATE_RECOVERING) << i;
    controller_->DetachWorker(w1_.id);
    w1_ = AttachAgain("w1", {Saved(uid_, 1, {5})});
    ASSERT_EQ(State("a"), v1::JOB_STATE_ADMITTED) << i;
    Formed(w0_);
    Formed(w1_);
  }
  EXPECT_EQ(Status("a").recoveries_in_a_row(), 0);
}

}  // namespace
}  // namespace tessera
