// Verifications: how they are asked for, and what becomes of their reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "coordinator/controller_testing.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr char kRequestId[] = "123e4567-e89b-42d3-a456-426614174000";

class ControllerVerificationTest : public ControllerTest {
 protected:
  static v1::VerifyTrainingJobRequest VerifyRequest(const std::string& id, int dp) {
    v1::VerifyTrainingJobRequest request;
    request.set_training_job_id(id);
    request.set_steps(3);
    *request.mutable_spec() = Request(id, dp).training_job().spec();
    return request;
  }
  void EndedWithReport(const TestWorker& worker, bool passed) {
    v1::WorkerMessage message;
    const v1::RankAssignment run = worker.session->Last(v1::CoordinatorMessage::kRun).run();
    v1::JobEnded& ended = *message.mutable_job_ended();
    ended.set_job_uid(run.job_uid());
    ended.set_epoch(run.epoch());
    ended.mutable_status();
    ended.mutable_verification()->set_passed(passed);
    ended.mutable_verification()->mutable_largest_parameter()->set_name(
        "rank " + std::to_string(run.coordinates().global_rank()));
    controller_->HandleWorkerMessage(worker.id, message);
  }
  std::string LastMessage(const std::string& id) {
    return Status(id).conditions().rbegin()->message();
  }
};

TEST_F(ControllerVerificationTest, TheReportOfRankZeroIsThereWhenAllRanksHaveEnded) {
  ASSERT_TRUE(Verify(VerifyRequest("a", 2)).ok());
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  const v1::RankAssignment run = w0.session->Last(v1::CoordinatorMessage::kRun).run();
  EXPECT_TRUE(run.spec().has_verification());
  EXPECT_EQ(run.spec().steps(), 3);
  Formed(w0);
  Formed(w1);
  EndedWithReport(w0, true);
  EXPECT_FALSE(Status("a").has_verification());
  EndedWithReport(w1, false);  // not for this rank to say
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUCCEEDED);
  Restart();
  EXPECT_TRUE(Status("a").verification().passed());
  EXPECT_EQ(Status("a").verification().largest_parameter().name(), "rank 0");
  EXPECT_EQ(LastMessage("a"), "the layout computes what one rank does");
}

TEST_F(ControllerVerificationTest, ALayoutThatDiffersIsAFindingNotAFailure) {
  ASSERT_TRUE(Verify(VerifyRequest("a", 1)).ok());
  TestWorker w0 = Attach("w0");
  Formed(w0);
  EndedWithReport(w0, false);
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(Status("a").verification().passed());
  EXPECT_EQ(LastMessage("a"), "the layout differs from one rank");
}

TEST_F(ControllerVerificationTest, AReportOfAFailedJobIsDropped) {
  ASSERT_TRUE(Verify(VerifyRequest("a", 2)).ok());
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  Formed(w0);
  Formed(w1);
  EndedWithReport(w0, true);
  Ended(w1, absl::InternalError("broken"));
  EXPECT_EQ(State("a"), v1::JOB_STATE_FAILED);
  EXPECT_FALSE(Status("a").has_verification());
}

TEST_F(ControllerVerificationTest, NothingGeneratesFromIt) {
  class NoSink : public GenerationSink {
    void Send(const v1::GenerateResponse&) override { ADD_FAILURE(); }
    void End(const absl::Status&) override { ADD_FAILURE(); }
  };
  ASSERT_TRUE(Verify(VerifyRequest("a", 1)).ok());
  TestWorker w0 = Attach("w0");
  Formed(w0);
  v1::GenerateRequest request;
  request.set_training_job("trainingJobs/a");
  request.set_text("x");
  const absl::Status running =
      controller_->StartGeneration(request, std::make_shared<NoSink>()).status();
  EXPECT_THAT(running.ToString(),
              HasSubstr("FAILED_PRECONDITION: trainingJobs/a: compares its layout with one rank, "
                        "and keeps no weights"));
  EXPECT_EQ(ReasonOf(running), "NO_WEIGHTS");
  EndedWithReport(w0, true);
  EXPECT_EQ(Status("a").weights_worker(), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(
      controller_->StartGeneration(request, std::make_shared<NoSink>()).status()));
}

TEST_F(ControllerVerificationTest, ARetryGetsTheFirstAnswerAlsoAfterARestart) {
  v1::VerifyTrainingJobRequest request = VerifyRequest("", 1);
  request.set_request_id(kRequestId);
  const std::string uid = Verify(request)->uid();
  EXPECT_EQ(Verify(request)->uid(), uid);
  Restart();
  EXPECT_EQ(Verify(request)->uid(), uid);
  EXPECT_EQ(controller_->ListJobs({})->training_jobs_size(), 1);
  // Another request, even though it stands for the same job.
  request.mutable_spec()->set_steps(11);
  EXPECT_EQ(ReasonOf(Verify(request).status()), "REQUEST_ID_REUSED");
  v1::CreateTrainingJobRequest create = Request("", 1);
  create.set_request_id(kRequestId);
  EXPECT_EQ(ReasonOf(Create(create).status()), "REQUEST_ID_REUSED");
}

TEST_F(ControllerVerificationTest, GoesThroughTheSameChecksAsACreate) {
  v1::VerifyTrainingJobRequest request = VerifyRequest("a", 1);
  request.set_steps(0);
  EXPECT_EQ(FieldOf(Verify(request).status()), "steps");
  request.set_steps(1);
  request.set_request_id("x");
  EXPECT_EQ(FieldOf(Verify(request).status()), "request_id");
  request.clear_request_id();
  request.mutable_spec()->mutable_model()->set_heads(3);
  EXPECT_EQ(FieldOf(Verify(request).status()), "spec.model.hidden_size");
  request.mutable_spec()->mutable_model()->set_heads(1);
  ASSERT_TRUE(Create(Request("a", 1)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Verify(request).status()));
  TestWorker w0 = Attach("w0");
  request.set_training_job_id("b");
  EXPECT_TRUE(absl::IsInternal(Verify(request).status())) << "a worker looks at the files first";
  EXPECT_TRUE(
      w0.session->Last(v1::CoordinatorMessage::kCheckData).check_data().spec().has_verification());
}

}  // namespace
}  // namespace tessera
