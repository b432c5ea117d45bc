// Jobs that outlive their workers: what is committed is found again, and what nobody needs goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/committing_job_testing.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr auto kRun = v1::CoordinatorMessage::kRun;
constexpr auto kDiscard = v1::CoordinatorMessage::kDiscardState;

class ControllerRecoveryTest : public CommittingJobTest {
 protected:
  // w1 is killed, and w0 has stopped.
  void Recover() {
    Run();
    Lose(w1_);
    Ended(w0_, absl::AbortedError("aborted"), {4, 5});
    ASSERT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  }
};

TEST_F(ControllerRecoveryTest, ALostWorkersJobGoesOnWhenItIsBack) {
  Run();
  for (int step = 1; step <= 6; ++step) Step(w0_, step);
  Lose(w1_);
  EXPECT_TRUE(w0_.session->Last(v1::CoordinatorMessage::kAbort).has_abort());
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  Ended(w0_, absl::AbortedError("aborted"), {5, 6});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  const v1::TrainingJobStatus status = Status("a");
  EXPECT_EQ(status.conditions(3).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(status.conditions(3).reason(), "WORKER_LOST");
  EXPECT_THAT(status.conditions(3).message(), HasSubstr("workers/w1 (global_rank 1) was lost"));
  EXPECT_EQ(status.conditions(4).reason(), "WAITING_FOR_STATE");
  EXPECT_FALSE(status.has_error());
  EXPECT_EQ(Count(w0_, kDiscard), 0);

  w1_ = AttachAgain("w1", {Saved(uid_, 1, {4, 5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w0_.session->Last(kRun).run().epoch(), 2);
  EXPECT_EQ(w0_.session->Last(kRun).run().resume_step(), 5);
  EXPECT_EQ(w1_.session->Last(kRun).run().resume_step(), 5);
  EXPECT_EQ(Status("a").progress().step(), 5);
  EXPECT_EQ(Status("a").progress().loss_curve_size(), 5);
  Formed(w0_);
  Formed(w1_);
  Step(w0_, 6);
  EXPECT_EQ(Status("a").progress().step(), 6);
  EXPECT_EQ(Status("a").progress().loss_curve_size(), 6);
}

TEST_F(ControllerRecoveryTest, EverythingIsKilledAndComesBack) {
  Run();
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  // Not only after the restart's grace: another process that has the job's state is evidence enough
  // that the old one is gone.
  w0_ = AttachAgain("w0", {Saved(uid_, 0, {7, 8})});
  Advance(absl::Seconds(1));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  w1_ = AttachAgain("w1", {Saved(uid_, 1, {6, 7})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1_.session->Last(kRun).run().resume_step(), 7);
  Formed(w0_);
  Formed(w1_);
  Ended(w0_, absl::OkStatus());
  Ended(w1_, absl::OkStatus());
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Count(w0_, kDiscard), 1);
}

TEST_F(ControllerRecoveryTest, TheCoordinatorAloneIsKilledAndTrainingGoesOn) {
  Run();
  Restart();
  TryAttach("w0", w0_.instance, RunningOf(w0_), 1 << 30, {Saved(uid_, 0, {7, 8})}).IgnoreError();
  TryAttach("w1", w1_.instance, RunningOf(w1_), 1 << 30, {Saved(uid_, 1, {7, 8})}).IgnoreError();
  Advance(absl::Seconds(5));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
}

TEST_F(ControllerRecoveryTest, ANameIsKeptWhereNothingTellsThatItsProcessIsGone) {
  Run();
  Restart();
  for (const std::vector<v1::SavedState>& saved :
       {std::vector<v1::SavedState>{}, {Saved("another job", 0, {7})}}) {
    EXPECT_EQ(TryAttach("w0", "another", {}, 1 << 30, saved).status().code(),
              absl::StatusCode::kUnavailable);
  }
  Advance(absl::Seconds(14));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  Advance(absl::Seconds(1));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
}

TEST_F(ControllerRecoveryTest, ARestartWhileItRecoversChangesNothing) {
  Recover();
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  AttachAgain("w1", {Saved(uid_, 1, {5})});
  AttachAgain("w0", {Saved(uid_, 0, {4, 5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Status("a").saved_step(), 5);
  AttachAgain("w1", {Saved(uid_, 1, {5})});
  w0_ = AttachAgain("w0", {Saved(uid_, 0, {4, 5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w0_.session->Last(kRun).run().epoch(), 3);
}

TEST_F(ControllerRecoveryTest, KilledBeforeTheFirstCommitItStartsFromTheBeginningAnywhere) {
  Run();
  Step(w0_, 1);
  Lose(w1_);
  Ended(w0_, absl::AbortedError("aborted"), {1});
  w1_ = AttachAgain("w1", {});
  ASSERT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_FALSE(w1_.session->Last(kRun).run().has_resume_step());
  EXPECT_EQ(Status("a").progress().step(), 0);
  const v1::TrainingJobStatus status = Status("a");
  EXPECT_EQ(status.conditions(status.conditions_size() - 2).reason(), "NO_SAVED_STATE");
  // What w0 held is of no use any more: it is not taken for a step of this run.
  Formed(w0_);
  Formed(w1_);
  Lose(w1_);
  Ended(w0_, absl::AbortedError("aborted"));
  w1_ = AttachAgain("w1", {Saved(uid_, 1, {1})});
  Advance(absl::Seconds(1));  // the second time in a row
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_FALSE(w1_.session->Last(kRun).run().has_resume_step());
}

TEST_F(ControllerRecoveryTest, AJobOfWhichADiskIsLostWaits) {
  Recover();
  AttachAgain("w1", {});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(LastCondition("a").message(),
            "trainingJobs/a: workers/w1 (global_rank 1) holds no state of it");
  EXPECT_EQ(controller_->CancelJob("trainingJobs/a")->status().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Count(w0_, kDiscard), 1);
}

// What a rank that is still stopping holds is not known yet.
TEST_F(ControllerRecoveryTest, AWorkerThatHasNotStoppedIsWaitedFor) {
  Run();
  Lose(w1_);
  Advance(absl::Seconds(2));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  w1_ = AttachAgain("w1", {Saved(uid_, 1, {1})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("(global_rank 0) has not yet stopped"));
  Ended(w0_, absl::AbortedError("aborted"), {1, 2});  // of the past epoch
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1_.session->Last(kRun).run().resume_step(), 1);
}

TEST_F(ControllerRecoveryTest, ItsWorkersAreKeptForItAWhile) {
  Recover();
  CreateChecked(Request("b", 1), {w0_});
  EXPECT_EQ(State("b"), v1::JOB_STATE_PENDING);
  TestWorker w2 = Attach("w2");
  EXPECT_EQ(Status("b").placement(0).worker(), "workers/w2");
  CreateChecked(Request("c", 1), {w0_, w2});
  EXPECT_EQ(State("c"), v1::JOB_STATE_PENDING);
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  for (int i = 0; i < 4; ++i) {
    for (const TestWorker& worker : {w0_, w2}) {
      controller_->HandleWorkerMessage(worker.id, heartbeat);
    }
    Advance(absl::Seconds(4));
  }
  EXPECT_EQ(Status("c").placement(0).worker(), "workers/w0");
}

TEST_F(ControllerRecoveryTest, AFailedDiskSuspendsTheJobUntilItIsMended) {
  Run();
  Ended(w1_, WithReason(absl::ResourceExhaustedError("nvme: the disk is full"), "TIER_FAILED"),
        {4, 5});
  Ended(w0_, absl::AbortedError("aborted"), {5, 6});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(LastCondition("a").reason(), "TIER_FAILED");
  EXPECT_THAT(LastCondition("a").message(),
              HasSubstr("workers/w1 (global_rank 1) failed: nvme: the disk is full"));
  EXPECT_EQ(Status("a").saved_step(), 5);
  EXPECT_FALSE(Status("a").has_error());
  EXPECT_EQ(Count(w0_, kDiscard), 0);
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1_.session->Last(kRun).run().resume_step(), 5);
}

TEST_F(ControllerRecoveryTest, ARanksOwnFaultFailsTheJobAndItsStateGoes) {
  Run();
  Ended(w1_, absl::InternalError("a fault"), {4, 5});
  EXPECT_EQ(Count(w1_, kDiscard), 0);
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(w0_.session->Last(kDiscard).discard_state().job_uid(), uid_);
  EXPECT_EQ(Count(w1_, kDiscard), 1);
}

// It still runs it when the job is settled, and is told when it has ended.
TEST_F(ControllerRecoveryTest, ALateEndIsToldToDiscard) {
  Run();
  Ended(w1_, absl::InternalError("a fault"));
  Advance(absl::Seconds(2));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Count(w0_, kDiscard), 0);
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  EXPECT_EQ(Count(w0_, kDiscard), 1);
}

TEST_F(ControllerRecoveryTest, StateOfAnUnknownJobIsLeftAlone) {
  Run();
  Ended(w0_, absl::OkStatus());
  Ended(w1_, absl::OkStatus());
  TestWorker w2 = AttachAgain("w2", {Saved("another coordinator's", 0, {5}), Saved(uid_, 1, {5})});
  EXPECT_EQ(Count(w2, kDiscard), 1);
  EXPECT_EQ(w2.session->Last(kDiscard).discard_state().job_uid(), uid_);
}

// Its communicators end first, so that others may speak before it does.
TEST_F(ControllerRecoveryTest, AWorkerThatIsAskedToStopIsWaitedForAlsoIfItSpeaksLast) {
  Run();
  AskToStop(w1_);
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  Ended(w1_, absl::CancelledError("workers/w1 was asked to stop"), {4, 5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(Status("a").recoveries_in_a_row(), 0);
  EXPECT_EQ(Count(w0_, kDiscard), 0);
}

TEST_F(ControllerRecoveryTest, AWorkerThatIsAskedToStopIsWaitedForAlsoIfItSaysNothing) {
  Run();
  AskToStop(w1_);
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  Advance(absl::Seconds(2));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Status("a").conditions(3).message(),
              HasSubstr("workers/w1 (global_rank 1) was lost: its worker stops"));
  EXPECT_EQ(Status("a").recoveries_in_a_row(), 0);
}

TEST_F(ControllerRecoveryTest, AllDisksAreLost) {
  Run();
  Step(w0_, 6);
  Lose(w1_);
  Ended(w0_, absl::AbortedError("aborted"), {});
  w1_ = AttachAgain("w1", {});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(LastCondition("a").reason(), "WAITING_FOR_STATE");
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("workers/w0 (global_rank 0) holds no state"));
}

TEST_F(ControllerRecoveryTest, AWorkerThatIsAskedToStopIsWaitedFor) {
  Run();
  AskToStop(w1_);
  Ended(w1_, absl::CancelledError("workers/w1 was asked to stop"), {4, 5});
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Status("a").conditions(3).message(), HasSubstr("was asked to stop"));
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("workers/w1 (global_rank 1) is stopping"));
  controller_->DetachWorker(w1_.id);
  w1_ = AttachAgain("w1", {Saved(uid_, 1, {4, 5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerRecoveryTest, AStartingJobStartsAgainAnywhere) {
  ASSERT_TRUE(Create(CommittingRequest("a", 2)).ok());
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  Formed(w0);
  Lose(w1);
  Ended(w0, absl::AbortedError("aborted"));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  EXPECT_TRUE(Status("a").placement().empty());
  TestWorker w2 = Attach("w2");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_FALSE(w2.session->Last(kRun).run().has_resume_step());
}

// What it was suspended with is still there until it has gone on.
TEST_F(ControllerRecoveryTest, AResumedJobThatLosesAWorkerWhileItStartsKeepsItsState) {
  ASSERT_TRUE(Create(Request("a", 2)).ok());
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  Formed(w0);
  Formed(w1);
  Suspend("a");
  Suspended(w0, 5);
  Suspended(w1, 5);
  Resume("a");
  Lose(w1);
  Ended(w0, absl::AbortedError("aborted"), {5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  w1 = AttachAgain("w1", {Saved(Job("a").uid(), 1, {5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1.session->Last(kRun).run().resume_step(), 5);
  // Then it trains without committing, and is as mortal as before.
  Formed(w0);
  Formed(w1);
  Lose(w1);
  Ended(w0, absl::AbortedError("aborted"));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
}

TEST_F(ControllerRecoveryTest, SuspendAndCancelOfARecoveringJob) {
  Recover();
  EXPECT_EQ(Suspend("a").state(), v1::JOB_STATE_SUSPENDED);
  w1_ = AttachAgain("w1", {Saved(uid_, 1, {5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1_.session->Last(kRun).run().resume_step(), 5);
}

TEST_F(ControllerRecoveryTest, AWorkerThatIsLostWhileTheJobIsSavedLeavesItSuspended) {
  Run();
  Suspend("a");
  Lose(w1_);
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(LastCondition("a").reason(), "WORKER_LOST");
}

TEST_F(ControllerRecoveryTest, ACancelThatCameAfterTheLossCounts) {
  Run();
  Lose(w1_);
  controller_->CancelJob("trainingJobs/a").IgnoreError();
  Ended(w0_, absl::AbortedError("aborted"), {4, 5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Count(w0_, kDiscard), 1);
}

TEST_F(ControllerRecoveryTest, ManyRecoveriesKeepTheFirstAndTheLastConditions) {
  Run();
  for (int i = 0; i < 100; ++i) {
    Lose(w1_);
    Ended(w0_, absl::AbortedError("aborted"), {5 + i});
    w1_ = AttachAgain("w1", {Saved(uid_, 1, {5 + i})});
    Formed(w0_);
    Formed(w1_);
    ASSERT_EQ(State("a"), v1::JOB_STATE_RUNNING) << i;
  }
  EXPECT_EQ(Status("a").conditions_size(), 256);
  EXPECT_EQ(Status("a").conditions(0).reason(), "CREATED");
  EXPECT_EQ(LastCondition("a").reason(), "GROUPS_FORMED");
}

TEST_F(ControllerRecoveryTest, WorkersTellOfTheirTiers) {
  Run();
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_host_memory_used_bytes(1);
  message.mutable_heartbeat()->set_nvme_free_bytes(2);
  message.mutable_heartbeat()->set_nvme_used_bytes(3);
  controller_->HandleWorkerMessage(w0_.id, message);
  const v1::Worker worker = controller_->ListWorkers({})->workers(0);
  EXPECT_EQ(worker.host_memory_used_bytes(), 1);
  EXPECT_EQ(worker.nvme_free_bytes(), 2);
  EXPECT_EQ(worker.nvme_used_bytes(), 3);
  message.mutable_memory()->set_job_uid(uid_);
  message.mutable_memory()->set_epoch(1);
  message.mutable_memory()->mutable_peak_tiers()->set_nvme_bytes(7);
  controller_->HandleWorkerMessage(w0_.id, message);
  EXPECT_EQ(Status("a").memory(0).measured_tiers().nvme_bytes(), 7);
}

}  // namespace
}  // namespace tessera
