// What becomes of jobs: scheduling, failures, restarts, leases.
#include "coordinator/controller.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "coordinator/controller_testing.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

TEST_F(ControllerTest, AJobGoesFromPendingToSucceeded) {
  ASSERT_TRUE(Create(Request("a", 2)).ok());
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  TestWorker w0 = Attach("w0");
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  TestWorker w1 = Attach("w1");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  const v1::RankAssignment run = w1.session->Last(v1::CoordinatorMessage::kRun).run();
  EXPECT_EQ(run.coordinates().dp_rank(), 1);
  EXPECT_EQ(run.groups(4).name(), "zero[pp=0,tp=0]");
  EXPECT_EQ(run.groups(4).members(0).address(), "address of w0");
  Formed(w0);
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  Formed(w1);
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  Ended(w1, absl::OkStatus());
  EXPECT_FALSE(w1.session->Last(v1::CoordinatorMessage::kJobEndedAck).has_job_ended_ack());
  Ended(w0, absl::OkStatus());
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(w1.session->Last(v1::CoordinatorMessage::kJobEndedAck).has_job_ended_ack());
}

TEST_F(ControllerTest, ALostWorkerFailsTheJobAfterTheGraceAndFreesTheOthers) {
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  Create(Request("a", 2)).IgnoreError();
  // Both workers may be asked to look at the data; answer whoever was.
  for (const TestWorker& worker : {w0, w1}) {
    const auto check = worker.session->Last(v1::CoordinatorMessage::kCheckData);
    if (!check.has_check_data()) continue;
    v1::WorkerMessage message;
    message.mutable_data_checked()->set_check_id(check.check_data().check_id());
    controller_->HandleWorkerMessage(worker.id, message);
  }
  Formed(w0);
  Formed(w1);
  ASSERT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  controller_->DetachWorker(w1.id);
  Advance(absl::Milliseconds(100));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  Advance(absl::Milliseconds(400));
  EXPECT_TRUE(w0.session->Last(v1::CoordinatorMessage::kAbort).has_abort());
  Ended(w0, absl::AbortedError("aborted"));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
  auto workers = controller_->ListWorkers({});
  EXPECT_EQ(workers->workers(0).state(), v1::WORKER_STATE_IDLE);
  EXPECT_EQ(workers->workers(1).state(), v1::WORKER_STATE_LOST);
}

TEST_F(ControllerTest, ABlipOfTheStreamIsForgiven) {
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  controller_->DetachWorker(w0.id);
  Advance(absl::Milliseconds(100));
  TestWorker again = *TryAttach("w0", w0.instance, RunningOf(w0));
  Advance(absl::Seconds(1));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  EXPECT_TRUE(again.session->closed.ok());
}

TEST_F(ControllerTest, SilenceOnALiveConnectionLosesTheWorker) {
  TestWorker w0 = Attach("w0");
  Advance(absl::Seconds(9));
  EXPECT_EQ(controller_->ListWorkers({})->workers(0).state(), v1::WORKER_STATE_IDLE);
  Advance(absl::Seconds(2));
  EXPECT_EQ(controller_->ListWorkers({})->workers(0).state(), v1::WORKER_STATE_LOST);
  EXPECT_EQ(w0.session->closed.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ControllerTest, ARestartedCoordinatorGoesOnWithARunningJob) {
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  TestWorker again = *TryAttach("w0", w0.instance, RunningOf(w0));
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  for (int i = 0; i < 20; ++i) {  // far beyond the restart's grace
    controller_->HandleWorkerMessage(again.id, heartbeat);
    Advance(absl::Seconds(5));
  }
  EXPECT_FALSE(again.session->Last(v1::CoordinatorMessage::kAbort).has_abort());
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
}

TEST_F(ControllerTest, WorkersThatDoNotComeBackAfterARestartAreLost) {
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  Restart();
  Advance(absl::Seconds(14));
  EXPECT_EQ(State("a"), v1::JOB_STATE_RUNNING);
  Advance(absl::Seconds(2));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
}

TEST_F(ControllerTest, AnAdmittedJobIsPlacedAgainAfterARestart) {
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  const v1::RunningJob old = RunningOf(w0);
  Restart();
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  TestWorker again = *TryAttach("w0", w0.instance, old);
  EXPECT_TRUE(again.session->Last(v1::CoordinatorMessage::kAbort).has_abort());
  v1::WorkerMessage ended;
  ended.mutable_job_ended()->set_job_uid(old.job_uid());
  ended.mutable_job_ended()->set_epoch(old.epoch());
  controller_->HandleWorkerMessage(again.id, ended);
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(again.session->Last(v1::CoordinatorMessage::kRun).run().epoch(), old.epoch() + 1);
}

TEST_F(ControllerTest, ReportsOfAPastEpochAreIgnored) {
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  v1::WorkerMessage message;
  message.mutable_step()->set_job_uid(RunningOf(w0).job_uid());
  message.mutable_step()->set_epoch(0);
  message.mutable_step()->set_step(5);
  controller_->HandleWorkerMessage(w0.id, message);
  EXPECT_EQ(controller_->GetJob("trainingJobs/a")->status().progress().step(), 0);
  message.mutable_step()->set_epoch(1);
  controller_->HandleWorkerMessage(w0.id, message);
  EXPECT_EQ(controller_->GetJob("trainingJobs/a")->status().progress().step(), 5);
}

TEST_F(ControllerTest, AWorkersVerdictOnTheDataDecidesACreate) {
  TestWorker w0 = Attach("w0");
  absl::StatusOr<v1::TrainingJob> result = absl::InternalError("not answered");
  controller_->CreateJob(Request("a", 1), [&](auto job) { result = job; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  v1::WorkerMessage message;
  message.mutable_data_checked()->set_check_id(
      w0.session->Last(v1::CoordinatorMessage::kCheckData).check_data().check_id());
  *message.mutable_data_checked()->mutable_status() =
      ToProto(InvalidField("spec.data.path", "x", "is empty"));
  controller_->HandleWorkerMessage(w0.id, message);
  EXPECT_EQ(FieldOf(result.status()), "spec.data.path");
  EXPECT_EQ(controller_->GetJob("trainingJobs/a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ControllerTest, ALostOrSilentCheckerAnswersUnavailable) {
  TestWorker w0 = Attach("w0");
  absl::StatusOr<v1::TrainingJob> result = absl::InternalError("not answered");
  controller_->CreateJob(Request("a", 1), [&](auto job) { result = job; });
  controller_->DetachWorker(w0.id);
  Advance(absl::Milliseconds(50));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
}

TEST_F(ControllerTest, ARetriedRequestGetsTheFirstAnswerAlsoAfterARestart) {
  v1::CreateTrainingJobRequest request = Request("", 1);
  request.set_request_id("123e4567-e89b-42d3-a456-426614174000");
  const std::string uid = Create(request)->uid();
  EXPECT_EQ(Create(request)->uid(), uid);
  Restart();
  EXPECT_EQ(Create(request)->uid(), uid);
  request.mutable_training_job()->mutable_spec()->set_steps(11);
  EXPECT_EQ(Create(request).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(controller_->ListJobs({})->training_jobs_size(), 1);
}

TEST_F(ControllerTest, ListsPage) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Create(Request(id, 1)).ok());
  v1::ListTrainingJobsRequest request;
  request.set_page_size(2);
  auto first = *controller_->ListJobs(request);
  ASSERT_EQ(first.training_jobs_size(), 2);
  request.set_page_token(first.next_page_token());
  auto second = *controller_->ListJobs(request);
  EXPECT_EQ(second.training_jobs(0).name(), "trainingJobs/c");
  EXPECT_TRUE(second.next_page_token().empty());
  request.set_page_token("nonsense");
  EXPECT_EQ(FieldOf(controller_->ListJobs(request).status()), "page_token");
  request.set_page_size(-1);
  EXPECT_EQ(FieldOf(controller_->ListJobs(request).status()), "page_size");
}

TEST_F(ControllerTest, CancelsPendingAtOnceAndRunningWhenItsRanksHaveStopped) {
  Create(Request("a", 1)).IgnoreError();
  Create(Request("b", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  EXPECT_EQ(controller_->CancelJob("trainingJobs/b")->status().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(controller_->CancelJob("trainingJobs/a")->status().state(), v1::JOB_STATE_RUNNING);
  EXPECT_TRUE(w0.session->Last(v1::CoordinatorMessage::kAbort).has_abort());
  Ended(w0, absl::AbortedError("cancelled"));
  EXPECT_EQ(State("a"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(controller_->CancelJob("trainingJobs/a")->status().state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(ControllerTest, RefusesAForeignProtocolATakenNameAndABadName) {
  TestWorker w0 = Attach("w0");
  EXPECT_EQ(TryAttach("w0", "another process").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(TryAttach("W0", "x").status().code(), absl::StatusCode::kInvalidArgument);
  v1::RegisterWorker request;
  request.set_protocol_version(2);
  EXPECT_EQ(controller_->AttachWorker(request, std::make_shared<FakeSession>()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ControllerTest, PlacementNamesGroupsAndWorkers) {
  Create(Request("a", 2)).IgnoreError();
  EXPECT_EQ(controller_->GetPlacement("trainingJobs/a").status().code(),
            absl::StatusCode::kFailedPrecondition);
  Attach("w0");
  Attach("w1");
  const v1::Placement placement = *controller_->GetPlacement("trainingJobs/a");
  EXPECT_EQ(placement.axis_order(), "dp, cp, pp, tp");
  ASSERT_EQ(placement.ranks_size(), 2);
  EXPECT_EQ(placement.ranks(1).worker(), "workers/w1");
  EXPECT_EQ(placement.ranks(1).groups(0).members(0).worker(), "workers/w0");
}

}  // namespace
}  // namespace tessera
