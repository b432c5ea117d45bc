// Jobs that make room for others: mostly, `low` is RUNNING on w0 and w1, `high` waits for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/controller_testing.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr auto kRun = v1::CoordinatorMessage::kRun;
constexpr auto kSuspend = v1::CoordinatorMessage::kSuspend;

class ControllerPreemptionTest : public ControllerTest {
 protected:
  static v1::CreateTrainingJobRequest Preempting(const std::string& id, int dp, int priority) {
    v1::CreateTrainingJobRequest request = Request(id, dp);
    request.mutable_training_job()->mutable_spec()->set_priority(priority);
    request.mutable_training_job()->mutable_spec()->set_preempt(true);
    return request;
  }
};

TEST_F(ControllerPreemptionTest, HigherPriorityGetsWorkersFirst) {
  for (const auto& [id, priority] : {std::pair("a", 0), std::pair("b", -5), std::pair("c", 7)}) {
    v1::CreateTrainingJobRequest request = Request(id, 1);
    request.mutable_training_job()->mutable_spec()->set_priority(priority);
    ASSERT_TRUE(Create(request).ok());
    clock_.elapsed += absl::Seconds(1);
  }
  Attach("w0");
  EXPECT_EQ(State("c"), v1::JOB_STATE_ADMITTED);
  Attach("w1");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(State("b"), v1::JOB_STATE_PENDING);
}

TEST_F(ControllerPreemptionTest, ALowerJobMakesRoomAndGoesOnAfterwards) {
  std::vector<TestWorker> workers = Running(Request("low", 2));
  CreateChecked(Preempting("high", 1, 5), workers);
  EXPECT_EQ(State("low"), v1::JOB_STATE_SUSPENDING);
  EXPECT_EQ(LastCondition("low").reason(), "PREEMPTED");
  EXPECT_EQ(LastCondition("low").message(), "for trainingJobs/high, whose priority 5 is above 0");
  EXPECT_FALSE(Status("low").suspend_requested());
  Advance(absl::Milliseconds(50));
  EXPECT_EQ(Count(workers[0], kSuspend), 1);
  for (const TestWorker& worker : workers) Suspended(worker, 3);
  EXPECT_EQ(State("high"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(State("low"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Status("low").conditions(4).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Status("low").conditions(4).reason(), "PREEMPTED");
  EXPECT_THAT(Status("low").conditions(4).message(), HasSubstr("for trainingJobs/high"));
  EXPECT_EQ(Status("low").saved_step(), 3);
  Ended(workers[0], absl::OkStatus());
  EXPECT_EQ(State("high"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(State("low"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(workers[1].session->Last(kRun).run().resume_step(), 3);
}

TEST_F(ControllerPreemptionTest, NotForOneOfThatPriorityNorForOneThatDoesNotAsk) {
  std::vector<TestWorker> workers = Running(Request("low", 2));
  CreateChecked(Preempting("same", 1, 0), workers);
  EXPECT_EQ(State("low"), v1::JOB_STATE_RUNNING);
  controller_->CancelJob("trainingJobs/same").IgnoreError();
  v1::CreateTrainingJobRequest patient = Preempting("patient", 1, 5);
  patient.mutable_training_job()->mutable_spec()->set_preempt(false);
  CreateChecked(patient, workers);
  EXPECT_EQ(State("low"), v1::JOB_STATE_RUNNING);
}

TEST_F(ControllerPreemptionTest, AStartingJobIsLeftAloneUntilItRuns) {
  ASSERT_TRUE(Create(Request("low", 1)).ok());
  TestWorker w0 = Attach("w0");
  CreateChecked(Preempting("high", 1, 5), {w0});
  EXPECT_EQ(State("low"), v1::JOB_STATE_ADMITTED);
  Formed(w0);
  Advance(absl::Milliseconds(50));
  EXPECT_EQ(State("low"), v1::JOB_STATE_SUSPENDING);
}

TEST_F(ControllerPreemptionTest, AVerificationIsLeftAlone) {
  v1::CreateTrainingJobRequest request = Request("low", 1);
  request.mutable_training_job()->mutable_spec()->mutable_verification();
  ASSERT_TRUE(Create(request).ok());
  TestWorker w0 = Attach("w0");
  Formed(w0);
  CreateChecked(Preempting("high", 1, 5), {w0});
  EXPECT_EQ(State("low"), v1::JOB_STATE_RUNNING);
}

TEST_F(ControllerPreemptionTest, OneThatCannotBeSavedIsNotAskedAgain) {
  std::vector<TestWorker> workers = Running(Request("low", 2));
  CreateChecked(Preempting("high", 1, 5), workers);
  SuspendFailed(workers[0], 1);
  for (int i = 0; i < 5; ++i) Advance(absl::Milliseconds(50));
  EXPECT_EQ(State("low"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Count(workers[0], kSuspend), 1);
  // Who waits for it is told, once.
  EXPECT_EQ(LastCondition("high").reason(), "WAITING_FOR_WORKERS");
  EXPECT_EQ(LastCondition("high").message(),
            "trainingJobs/high: trainingJobs/low cannot make room: workers/w0 (global_rank 0) "
            "could not save its state: no space; training goes on");
  EXPECT_EQ(Status("high").conditions_size(), 2);
  Ended(workers[0], absl::OkStatus());
  Ended(workers[1], absl::OkStatus());
  EXPECT_EQ(State("high"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerPreemptionTest, WhoWaitsForItsOwnWorkersIsToldThatTheyAreNotFreed) {
  std::vector<TestWorker> workers = Running(Preempting("high", 2, 5));
  Suspend("high");
  for (const TestWorker& worker : workers) Suspended(worker, 3);
  CreateChecked(Request("low", 1), workers);
  Formed(workers[0]);
  Resume("high");
  SuspendFailed(workers[0], 1);
  Advance(absl::Milliseconds(50));
  EXPECT_EQ(State("low"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(LastCondition("high").message(),
            "trainingJobs/high: workers/w0 (global_rank 0) runs trainingJobs/low; trainingJobs/low "
            "cannot make room: workers/w0 (global_rank 0) could not save its state: no space; "
            "training goes on");
}

TEST_F(ControllerPreemptionTest, APersonsSuspendOutlastsThePreemption) {
  std::vector<TestWorker> workers = Running(Request("low", 2));
  CreateChecked(Preempting("high", 1, 5), workers);
  EXPECT_TRUE(Suspend("low").suspend_requested());
  for (const TestWorker& worker : workers) Suspended(worker, 3);
  EXPECT_EQ(State("low"), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(State("high"), v1::JOB_STATE_ADMITTED);
  Ended(workers[0], absl::OkStatus());
  EXPECT_EQ(State("low"), v1::JOB_STATE_SUSPENDED);
}

TEST_F(ControllerPreemptionTest, APreemptionOutlastsARestart) {
  std::vector<TestWorker> workers = Running(Request("low", 2));
  CreateChecked(Preempting("high", 1, 5), workers);
  const v1::CoordinatorMessage runs[] = {workers[0].session->Last(kRun),
                                         workers[1].session->Last(kRun)};
  Restart();
  TestWorker w0 = *TryAttach("w0", workers[0].instance, RunningOf(workers[0]));
  TestWorker w1 = *TryAttach("w1", workers[1].instance, RunningOf(workers[1]));
  w0.session->sent.push_back(runs[0]);
  w1.session->sent.push_back(runs[1]);
  Suspended(w0, 3);
  Suspended(w1, 3);
  EXPECT_EQ(State("high"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(State("low"), v1::JOB_STATE_PENDING);
}

// It was suspended by a person, and its workers have a lower job since.
TEST_F(ControllerPreemptionTest, AResumedJobGetsItsOwnWorkersBack) {
  std::vector<TestWorker> workers = Running(Preempting("high", 2, 5));
  Suspend("high");
  for (const TestWorker& worker : workers) Suspended(worker, 3);
  CreateChecked(Request("low", 1), workers);
  Formed(workers[0]);
  ASSERT_EQ(State("low"), v1::JOB_STATE_RUNNING);
  Resume("high");
  EXPECT_EQ(State("low"), v1::JOB_STATE_SUSPENDING);
  Suspended(workers[0], 1);
  EXPECT_EQ(State("high"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(State("low"), v1::JOB_STATE_PENDING);
}

}  // namespace
}  // namespace tessera
