// Where generations go, and what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/controller_testing.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FakeSink : public GenerationSink {
 public:
  void Send(const v1::GenerateResponse& response) override { texts.push_back(response.text()); }
  void End(const absl::Status& status) override { end = status; }
  std::vector<std::string> texts;
  std::optional<absl::Status> end;
};

class ControllerGenerationsTest : public ControllerTest {
 protected:
  absl::StatusOr<std::string> Start(const std::string& job, const std::string& path = "") {
    v1::GenerateRequest request;
    if (path.empty()) {
      request.set_training_job("trainingJobs/" + job);
    } else {
      request.set_path(path);
    }
    request.set_text("x");
    return controller_->StartGeneration(request, sink_);
  }
  static v1::RunGeneration RunOf(const TestWorker& worker) {
    return worker.session->Last(v1::CoordinatorMessage::kRunGeneration).run_generation();
  }
  void Generated(const TestWorker& worker, const std::string& id, const std::string& text,
                 const std::optional<absl::Status>& end = std::nullopt) {
    v1::WorkerMessage message;
    message.mutable_generated()->set_generation_id(id);
    if (!text.empty()) message.mutable_generated()->mutable_response()->set_text(text);
    if (end.has_value()) *message.mutable_generated()->mutable_status() = ToProto(*end);
    controller_->HandleWorkerMessage(worker.id, message);
  }
  // Ends the job on rank 0 with word about its weights.
  void EndedWithWeights(const TestWorker& worker, const absl::Status& kept) {
    v1::WorkerMessage message;
    const v1::RankAssignment run = worker.session->Last(v1::CoordinatorMessage::kRun).run();
    message.mutable_job_ended()->set_job_uid(run.job_uid());
    message.mutable_job_ended()->set_epoch(run.epoch());
    message.mutable_job_ended()->mutable_status();
    *message.mutable_job_ended()->mutable_weights_kept() = ToProto(kept);
    controller_->HandleWorkerMessage(worker.id, message);
  }

  std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
};

TEST_F(ControllerGenerationsTest, ARunningJobsRankZeroGenerates) {
  Create(Request("a", 2)).IgnoreError();
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  EXPECT_THAT(Start("a").status().ToString(),
              HasSubstr("FAILED_PRECONDITION: trainingJobs/a: is ADMITTED: must be RUNNING or "
                        "SUCCEEDED to have weights"));
  Formed(w0);
  Formed(w1);
  absl::StatusOr<std::string> id = Start("a");
  ASSERT_TRUE(id.ok()) << id.status();
  const v1::RunGeneration run = RunOf(w0);
  EXPECT_EQ(run.generation_id(), *id);
  EXPECT_EQ(run.job_uid(), w0.session->Last(v1::CoordinatorMessage::kRun).run().job_uid());
  EXPECT_EQ(run.spec().steps(), 10);
  EXPECT_EQ(run.request().text(), "x");
  EXPECT_FALSE(w1.session->Last(v1::CoordinatorMessage::kRunGeneration).has_run_generation());
  Generated(w0, *id, "one");
  Generated(w1, *id, "not yours");
  Generated(w0, *id, "two", absl::OkStatus());
  Generated(w0, *id, "too late");
  EXPECT_THAT(sink_->texts, ElementsAre("one", "two"));
  EXPECT_EQ(sink_->end, absl::OkStatus());
}

TEST_F(ControllerGenerationsTest, AFinishedJobsWeightsAreWhereTheyWereKept) {
  Create(Request("kept", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  EndedWithWeights(w0, absl::OkStatus());
  EXPECT_EQ(controller_->GetJob("trainingJobs/kept")->status().weights_worker(), "workers/w0");
  ASSERT_TRUE(Start("kept").ok());
  // Known after a restart of both, too.
  Restart();
  EXPECT_THAT(
      Start("kept").status().ToString(),
      HasSubstr("UNAVAILABLE: trainingJobs/kept: its weights are on workers/w0, which is not "
                "attached"));
  w0 = *TryAttach("w0", "another process");
  EXPECT_TRUE(Start("kept").ok());
  EXPECT_EQ(RunOf(w0).request().training_job(), "trainingJobs/kept");
}

TEST_F(ControllerGenerationsTest, JobsWithoutWeights) {
  Create(Request("a", 1)).IgnoreError();
  EXPECT_THAT(Start("a").status().ToString(), HasSubstr("is PENDING: must be RUNNING"));
  TestWorker w0 = Attach("w0");
  Formed(w0);
  EndedWithWeights(w0, absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Start("a").status().ToString(),
              HasSubstr("FAILED_PRECONDITION: trainingJobs/a: its final weights were not kept"));
  EXPECT_THAT(Start("none").status().ToString(),
              HasSubstr("NOT_FOUND: trainingJobs/none: there is no such job"));
  EXPECT_THAT(Start("A B").status().ToString(), HasSubstr("INVALID_ARGUMENT: training_job: "));
}

TEST_F(ControllerGenerationsTest, AJobThatIsBeingCancelled) {
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  Formed(w0);
  ASSERT_TRUE(Start("a").ok());
  ASSERT_TRUE(controller_->CancelJob("trainingJobs/a").ok());
  EXPECT_THAT(Start("a").status().ToString(),
              HasSubstr("FAILED_PRECONDITION: trainingJobs/a: is being cancelled"));
  Ended(w0, absl::AbortedError("cancelled"));
  EXPECT_THAT(Start("a").status().ToString(), HasSubstr("is CANCELLED: must be RUNNING"));
}

TEST_F(ControllerGenerationsTest, APathGoesToAnIdleWorker) {
  EXPECT_THAT(Start("", "gpt2").status().ToString(),
              HasSubstr("UNAVAILABLE: no worker is attached"));
  Create(Request("a", 1)).IgnoreError();
  TestWorker w0 = Attach("w0");
  ASSERT_TRUE(Start("", "gpt2").ok());
  EXPECT_EQ(RunOf(w0).request().path(), "gpt2") << "busy, but the only one";
  EXPECT_FALSE(RunOf(w0).has_spec());
  TestWorker w1 = Attach("w1");
  ASSERT_TRUE(Start("", "other").ok());
  EXPECT_EQ(RunOf(w1).request().path(), "other");
}

TEST_F(ControllerGenerationsTest, ACancelReachesTheWorker) {
  TestWorker w0 = Attach("w0");
  absl::StatusOr<std::string> id = Start("", "gpt2");
  controller_->CancelGeneration(*id);
  EXPECT_EQ(w0.session->Last(v1::CoordinatorMessage::kCancelGeneration)
                .cancel_generation()
                .generation_id(),
            *id);
  Generated(w0, *id, "too late", absl::OkStatus());
  EXPECT_TRUE(sink_->texts.empty());
  EXPECT_FALSE(sink_->end.has_value());
  controller_->CancelGeneration(*id);
  controller_->CancelGeneration("unknown");
}

TEST_F(ControllerGenerationsTest, ALostWorkersGenerationsEnd) {
  TestWorker w0 = Attach("w0");
  ASSERT_TRUE(Start("", "gpt2").ok());
  Advance(absl::Milliseconds(50));
  EXPECT_FALSE(sink_->end.has_value());
  controller_->DetachWorker(w0.id);
  Advance(absl::Milliseconds(50));
  ASSERT_TRUE(sink_->end.has_value());
  EXPECT_THAT(sink_->end->ToString(),
              HasSubstr("UNAVAILABLE: workers/w0 was lost while it generated; try again"));
}

TEST_F(ControllerGenerationsTest, AStoppingCoordinatorEndsThem) {
  Attach("w0");
  ASSERT_TRUE(Start("", "gpt2").ok());
  controller_->Shutdown();
  EXPECT_EQ(sink_->end, absl::UnavailableError("the coordinator stops"));
  EXPECT_TRUE(absl::IsUnavailable(Start("", "gpt2").status()));
}

}  // namespace
}  // namespace tessera
