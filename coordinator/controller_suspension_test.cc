// Jobs that are suspended and resumed, by people and for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/controller_testing.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr auto kRun = v1::CoordinatorMessage::kRun;
constexpr auto kSuspend = v1::CoordinatorMessage::kSuspend;
constexpr auto kDiscard = v1::CoordinatorMessage::kDiscardState;
constexpr auto kAck = v1::CoordinatorMessage::kJobEndedAck;

class ControllerSuspensionTest : public ControllerTest {
 protected:
  std::vector<TestWorker> SuspendedAfter(int64_t step, const std::string& id) {
    std::vector<TestWorker> workers = Running(Request(id, 2));
    Suspend(id);
    for (const TestWorker& worker : workers) Suspended(worker, step);
    EXPECT_EQ(State(id), v1::JOB_STATE_SUSPENDED);
    return workers;
  }
};

TEST_F(ControllerSuspensionTest, ARunningJobIsSavedAndGoesOnWhereItWas) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Step(workers[0], 4);
  EXPECT_EQ(Suspend("a").state(), v1::JOB_STATE_SUSPENDING);
  EXPECT_EQ(LastCondition("a").reason(), "SUSPEND_REQUESTED");
  for (const TestWorker& worker : workers) {
    EXPECT_EQ(worker.session->Last(kSuspend).suspend().job_uid(), Job("a").uid());
    EXPECT_EQ(worker.session->Last(kSuspend).suspend().epoch(), 1);
  }
  Suspended(workers[0], 5);
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDING);
  EXPECT_EQ(Count(workers[0], kAck), 0);
  Suspended(workers[1], 5);
  v1::TrainingJobStatus status = Status("a");
  EXPECT_EQ(status.state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(LastCondition("a").reason(), "SUSPENDED");
  EXPECT_EQ(status.saved_step(), 5);
  EXPECT_EQ(status.progress().step(), 5);
  EXPECT_TRUE(status.suspend_requested());
  EXPECT_FALSE(status.progress().has_seconds_left());
  EXPECT_FALSE(status.has_error());
  EXPECT_EQ(status.placement_size(), 2);
  EXPECT_EQ(Count(workers[1], kAck), 1);
  EXPECT_EQ(Count(workers[1], kDiscard), 0);
  EXPECT_EQ(controller_->ListWorkers({})->workers(0).state(), v1::WORKER_STATE_IDLE);
  Advance(absl::Seconds(1));
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);

  EXPECT_EQ(Resume("a").state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  for (int rank = 0; rank < 2; ++rank) {
    const v1::RankAssignment run = workers[rank].session->Last(kRun).run();
    EXPECT_EQ(run.epoch(), 2);
    EXPECT_EQ(run.resume_step(), 5);
    EXPECT_EQ(run.coordinates().global_rank(), rank);
  }
  EXPECT_FALSE(Status("a").suspend_requested());
  for (const TestWorker& worker : workers) Formed(worker);
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  EXPECT_FALSE(Status("a").has_saved_step());
  Step(workers[0], 6);
  EXPECT_EQ(Status("a").progress().step(), 6);
  // Of this assignment alone: 4 steps are left, of a second each.
  EXPECT_EQ(Status("a").progress().seconds_left(), 4);
}

TEST_F(ControllerSuspensionTest, AJobThatWaitsIsSuspendedAtOnceAndThenPlacedAnywhere) {
  ASSERT_TRUE(Create(Request("a", 1)).ok());
  EXPECT_EQ(Suspend("a").state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_FALSE(Status("a").has_saved_step());
  TestWorker w0 = Attach("w0");
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  w0 = Attach("w0");
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_FALSE(w0.session->Last(kRun).run().has_resume_step());
  EXPECT_EQ(Status("a").conditions(2).reason(), "RESUMED");
}

TEST_F(ControllerSuspensionTest, AStartingJobIsSuspendedOnceItRuns) {
  ASSERT_TRUE(Create(Request("a", 2)).ok());
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  EXPECT_EQ(Suspend("a").state(), v1::JOB_STATE_ADMITTED);
  EXPECT_TRUE(Status("a").suspend_requested());
  EXPECT_EQ(Count(w0, kSuspend), 0);
  Formed(w0);
  Formed(w1);
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDING);
  EXPECT_EQ(Count(w0, kSuspend), 1);
  EXPECT_EQ(Count(w1, kSuspend), 1);
}

TEST_F(ControllerSuspensionTest, AStartingJobThatIsResumedIsNotSuspended) {
  ASSERT_TRUE(Create(Request("a", 1)).ok());
  TestWorker w0 = Attach("w0");
  Suspend("a");
  EXPECT_FALSE(Resume("a").suspend_requested());
  Formed(w0);
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Count(w0, kSuspend), 0);
}

TEST_F(ControllerSuspensionTest, AskingAgainChangesNothing) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  int64_t revision = Status("a").revision();
  EXPECT_EQ(Resume("a").revision(), revision);
  revision = Suspend("a").revision();
  EXPECT_EQ(Suspend("a").revision(), revision);
  EXPECT_EQ(Count(workers[0], kSuspend), 1);
  for (const TestWorker& worker : workers) Suspended(worker, 1);
  revision = Status("a").revision();
  EXPECT_EQ(Suspend("a").revision(), revision);
}

TEST_F(ControllerSuspensionTest, AResumeWhileItIsSavedIsRemembered) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  EXPECT_EQ(Resume("a").state(), v1::JOB_STATE_SUSPENDING);
  Restart();
  for (TestWorker& worker : workers) {
    const v1::RunningJob running = RunningOf(worker);
    const std::string name =
        worker.session->Last(kRun).run().coordinates().global_rank() == 0 ? "w0" : "w1";
    const v1::CoordinatorMessage run = worker.session->Last(kRun);
    worker = *TryAttach(name, worker.instance, running);
    worker.session->sent.push_back(run);
  }
  Suspended(workers[0], 3);
  Suspended(workers[1], 3);
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  const v1::TrainingJobStatus status = Status("a");
  EXPECT_EQ(status.conditions(status.conditions_size() - 2).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(status.conditions(status.conditions_size() - 2).reason(), "RESUMED");
  EXPECT_EQ(workers[0].session->Last(kRun).run().resume_step(), 3);
}

TEST_F(ControllerSuspensionTest, ASuspendAfterTheResumeCounts) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  Resume("a");
  EXPECT_TRUE(Suspend("a").suspend_requested());
  for (const TestWorker& worker : workers) Suspended(worker, 3);
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
}

TEST_F(ControllerSuspensionTest, EndedJobsAndVerificationsAreRefused) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  controller_->CancelJob("trainingJobs/a").IgnoreError();
  EXPECT_EQ(ReasonOf(controller_->SuspendJob("trainingJobs/a").status()), "JOB_ENDED");
  for (const TestWorker& worker : workers) Ended(worker, absl::AbortedError("x"));
  for (const auto& status : {controller_->SuspendJob("trainingJobs/a").status(),
                             controller_->ResumeJob("trainingJobs/a").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(), "trainingJobs/a: is CANCELLED: must not have ended");
  }
  v1::CreateTrainingJobRequest verification = Request("v", 1);
  verification.mutable_training_job()->mutable_spec()->mutable_verification();
  CreateChecked(verification, workers);
  EXPECT_EQ(ReasonOf(controller_->SuspendJob("trainingJobs/v").status()), "JOB_IS_VERIFICATION");
  EXPECT_TRUE(controller_->ResumeJob("trainingJobs/v").ok());
  EXPECT_EQ(controller_->SuspendJob("trainingJobs/none").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(FieldOf(controller_->ResumeJob("none").status()), "name");
}

TEST_F(ControllerSuspensionTest, AJobThatCannotBeSavedGoesOn) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  SuspendFailed(workers[1], 0);  // of a past run
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDING);
  SuspendFailed(workers[1], 1);
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  EXPECT_FALSE(Status("a").suspend_requested());
  EXPECT_EQ(LastCondition("a").reason(), "SUSPEND_FAILED");
  EXPECT_THAT(LastCondition("a").message(),
              HasSubstr("workers/w1 (global_rank 1) could not save its state: no space"));
  const int64_t revision = Status("a").revision();
  SuspendFailed(workers[0], 1);
  EXPECT_EQ(Status("a").revision(), revision);
  // Asked again, it works, whatever the other rank still has to say of the first time.
  Suspend("a");
  EXPECT_EQ(Count(workers[0], kSuspend), 2);
  SuspendFailed(workers[0], 1);
  for (const TestWorker& worker : workers) Suspended(worker, 7);
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_TRUE(Status("a").suspend_requested());
}

TEST_F(ControllerSuspensionTest, AJobThatIsDoneMeanwhileSucceeds) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  for (const TestWorker& worker : workers) Ended(worker, absl::OkStatus());
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ControllerSuspensionTest, RanksThatDisagreeFailTheJobAndItsStateGoes) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  Suspended(workers[0], 4);
  Suspended(workers[1], 5);
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Status("a").error().code(), static_cast<int>(absl::StatusCode::kInternal));
  for (const TestWorker& worker : workers) {
    EXPECT_EQ(worker.session->Last(kDiscard).discard_state().job_uid(), Job("a").uid());
  }
}

TEST_F(ControllerSuspensionTest, AWorkerThatIsLostBeforeItHasCommittedFailsTheJob) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  controller_->DetachWorker(workers[1].id);
  Advance(absl::Seconds(1));
  Ended(workers[0], absl::AbortedError("aborted"));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
}

// Nobody is left who could say that all have committed, and a plain job has no earlier step.
TEST_F(ControllerSuspensionTest, AllWorkersThatAreLostBeforeTheyHaveCommittedFailTheJob) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Step(workers[0], 4);
  Suspend("a");
  for (const TestWorker& worker : workers) controller_->DetachWorker(worker.id);
  Advance(absl::Seconds(1));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(LastCondition("a").reason(), "WORKER_LOST");
  const std::string message =
      "workers/w0 (global_rank 0) was lost: its stream ended and it did not come back; no "
      "collective was pending; it was being suspended, and not all ranks are known to have saved "
      "their state";
  EXPECT_EQ(LastCondition("a").message(), message);
  EXPECT_EQ(Status("a").error().message(), message);
  EXPECT_EQ(Status("a").error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  // What one of them may have saved is of no use without the others'.
  TestWorker w0 = AttachAgain("w0", {Saved(Job("a").uid(), 0, {5})});
  EXPECT_EQ(Count(w0, kDiscard), 1);
  EXPECT_EQ(ReasonOf(controller_->ResumeJob("trainingJobs/a").status()), "JOB_ENDED");
}

// The one that is lost had committed too, or the other would not say that it is suspended.
TEST_F(ControllerSuspensionTest, AWorkerThatIsLostAfterwardsBringsItsStateBack) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  Suspended(workers[0], 5);
  controller_->DetachWorker(workers[1].id);
  Advance(absl::Seconds(1));
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Status("a").saved_step(), 5);
  Resume("a");
  EXPECT_EQ(LastCondition("a").message(),
            "trainingJobs/a: workers/w1 (global_rank 1) is not attached");
  AttachAgain("w1", {Saved(Job("a").uid(), 1, {5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerSuspensionTest, CancelEndsItInEveryState) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  controller_->CancelJob("trainingJobs/a").IgnoreError();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDING);
  for (const TestWorker& worker : workers) Suspended(worker, 5);  // they were faster
  EXPECT_EQ(State("a"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Count(workers[0], kDiscard), 1);
}

TEST_F(ControllerSuspensionTest, CancelOfASuspendedJobDiscardsItsState) {
  std::vector<TestWorker> workers = SuspendedAfter(5, "a");
  controller_->DetachWorker(workers[1].id);
  EXPECT_EQ(controller_->CancelJob("trainingJobs/a")->status().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(workers[0].session->Last(kDiscard).discard_state().job_uid(), Job("a").uid());
  EXPECT_EQ(Count(workers[1], kDiscard), 0);
  // The other one is told when it is back, also by another coordinator; then nobody is told again.
  Restart();
  TestWorker w1 = AttachAgain("w1", {Saved(Job("a").uid(), 1, {5})});
  EXPECT_EQ(Count(w1, kDiscard), 1);
  EXPECT_TRUE(GetPlacementOf("a").ranks(0).shards().empty());
}

TEST_F(ControllerSuspensionTest, ARestartedCoordinatorAsksAgain) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  Suspend("a");
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDING);
  TestWorker w0 = *TryAttach("w0", workers[0].instance, RunningOf(workers[0]));
  TestWorker w1 = *TryAttach("w1", workers[1].instance, RunningOf(workers[1]));
  EXPECT_EQ(Count(w0, kSuspend), 1);
  EXPECT_EQ(w1.session->Last(kSuspend).suspend().epoch(), 1);
  for (TestWorker* worker : {&w0, &w1}) {
    worker->session->sent.push_back(workers[worker == &w1].session->Last(kRun));
    Suspended(*worker, 5);
  }
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Status("a").saved_step(), 5);
}

// A stream that breaks may have lost the message.
TEST_F(ControllerSuspensionTest, AWorkerThatAttachesAgainIsAskedAgain) {
  std::vector<TestWorker> workers = Running(Request("a", 2));
  controller_->DetachWorker(workers[1].id);
  Suspend("a");
  TestWorker w1 = *TryAttach("w1", workers[1].instance, RunningOf(workers[1]));
  EXPECT_EQ(Count(w1, kSuspend), 1);
}

TEST_F(ControllerSuspensionTest, ASuspendedJobStaysSoAndItsStateIsFoundAgain) {
  SuspendedAfter(5, "a");
  const std::string uid = Job("a").uid();
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  Resume("a");
  TestWorker w0 = AttachAgain("w0", {Saved(uid, 0, {5})});
  EXPECT_EQ(LastCondition("a").reason(), "WAITING_FOR_STATE");
  TestWorker other = AttachAgain("w2", {});
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  Restart();  // also when it has been resumed already
  w0 = AttachAgain("w0", {Saved(uid, 0, {5})});
  TestWorker w1 = AttachAgain("w1", {Saved(uid, 1, {5})});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w1.session->Last(kRun).run().resume_step(), 5);
  EXPECT_EQ(w1.session->Last(kRun).run().coordinates().global_rank(), 1);
}

TEST_F(ControllerSuspensionTest, AResumedJobThatWasStartingKeepsItsStateOverARestart) {
  std::vector<TestWorker> workers = SuspendedAfter(5, "a");
  Resume("a");
  ASSERT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  const std::string uid = Job("a").uid();
  TestWorker w0 = AttachAgain("w0", {Saved(uid, 0, {5})});
  TestWorker w1 =
      *TryAttach("w1", workers[1].instance, RunningOf(workers[1]), 1 << 30, {Saved(uid, 1, {5})});
  EXPECT_EQ(Count(w1, v1::CoordinatorMessage::kAbort), 1);
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("workers/w1 (global_rank 1) has not yet"));
  w1.session->sent.push_back(workers[1].session->Last(kRun));
  Ended(w1, absl::AbortedError("aborted"), {5});
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(w0.session->Last(kRun).run().epoch(), 3);
  EXPECT_EQ(w0.session->Last(kRun).run().resume_step(), 5);
}

TEST_F(ControllerSuspensionTest, AStartingJobThatIsToBeSuspendedIsSoAfterARestart) {
  ASSERT_TRUE(Create(Request("a", 1)).ok());
  Attach("w0");
  Suspend("a");
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_FALSE(Status("a").has_saved_step());
  EXPECT_TRUE(Status("a").placement().empty());
}

TEST_F(ControllerSuspensionTest, WhatIsMissingIsToldOnceAndHoldsUpNobody) {
  std::vector<TestWorker> workers = SuspendedAfter(5, "a");
  const std::string uid = Job("a").uid();
  controller_->DetachWorker(workers[1].id);
  Advance(absl::Seconds(1));
  Resume("a");
  EXPECT_EQ(LastCondition("a").reason(), "WAITING_FOR_STATE");
  const int conditions = Status("a").conditions_size();
  const int64_t revision = Status("a").revision();
  for (int i = 0; i < 5; ++i) Advance(absl::Milliseconds(50));
  EXPECT_EQ(Status("a").revision(), revision);
  // It has lost its disk, or holds another rank's state: the condition is replaced.
  TestWorker w1 = AttachAgain("w1", {Saved(uid, 0, {5})});
  EXPECT_EQ(LastCondition("a").message(),
            "trainingJobs/a: workers/w1 (global_rank 1) holds no state of it");
  EXPECT_EQ(Status("a").conditions_size(), conditions);
  CreateChecked(Request("b", 2), {workers[0], w1});
  EXPECT_EQ(State("b"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
}

TEST_F(ControllerSuspensionTest, AJobWaitsForItsOwnWorkersAndIsNotOvertakenOnThem) {
  std::vector<TestWorker> workers = SuspendedAfter(5, "a");
  CreateChecked(Request("b", 1), workers);
  ASSERT_EQ(Status("b").placement(0).worker(), "workers/w0");
  Resume("a");
  EXPECT_EQ(LastCondition("a").reason(), "WAITING_FOR_WORKERS");
  EXPECT_EQ(LastCondition("a").message(),
            "trainingJobs/a: workers/w0 (global_rank 0) runs trainingJobs/b");
  CreateChecked(Request("c", 1), workers);
  EXPECT_EQ(State("c"), v1::JOB_STATE_PENDING);  // although w1 is idle
  TestWorker w2 = Attach("w2");
  EXPECT_EQ(Status("c").placement(0).worker(), "workers/w2");
  Ended(workers[0], absl::OkStatus());
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerSuspensionTest, BeforeTheFirstStepItMayGoAnywhere) {
  std::vector<TestWorker> workers = SuspendedAfter(0, "a");
  EXPECT_TRUE(Status("a").has_saved_step());
  for (const TestWorker& worker : workers) controller_->DetachWorker(worker.id);
  Advance(absl::Seconds(1));
  Attach("w2");
  TestWorker w3 = Attach("w3");
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_FALSE(w3.session->Last(kRun).run().has_resume_step());
}

}  // namespace
}  // namespace tessera
