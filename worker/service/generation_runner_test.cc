// Text from weights of running jobs, of jobs that have ended, and of folders.
#include "worker/service/generation_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "worker/service/worker_testing.h"

namespace tessera {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kEndless = int64_t{1} << 40;

class GenerationRunnerTest : public WorkerTest {
 protected:
  GenerationRunnerTest() { NewRunner(); }

  void NewRunner() {
    generations_ = std::make_unique<GenerationRunner>(
        context_, runner_.get(), [this](const v1::WorkerMessage& message) { Send(message); });
  }

  struct Result {
    std::vector<int32_t> tokens;
    std::string text;
    std::optional<int64_t> step;
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
    absl::Status status;
  };

  // Of a job's weights, its spec being that of Assignment.
  v1::RunGeneration OfJob(const std::string& id, const std::string& uid) const {
    v1::RunGeneration run;
    run.set_generation_id(id);
    run.set_job_uid(uid);
    *run.mutable_spec() = Assignment(uid, 3).spec();
    run.mutable_request()->set_training_job("trainingJobs/" + uid);
    run.mutable_request()->set_text("the");
    run.mutable_request()->set_max_new_tokens(5);
    run.mutable_request()->set_temperature(0);
    return run;
  }
  v1::RunGeneration OfPath(const std::string& id, const std::string& path) const {
    v1::RunGeneration run;
    run.set_generation_id(id);
    *run.mutable_request() = OfJob(id, "x").request();
    run.mutable_request()->set_path(path);
    return run;
  }

  // Waits for the end.
  Result ResultOf(const std::string& id) {
    AwaitMatch([&](const v1::WorkerMessage& message) {
      return message.generated().generation_id() == id && message.generated().has_status();
    });
    std::lock_guard<std::mutex> lock(mutex_);
    Result result;
    for (const v1::WorkerMessage& message : sent_) {
      const v1::Generated& generated = message.generated();
      if (generated.generation_id() != id) continue;
      const v1::GenerateResponse& response = generated.response();
      result.tokens.insert(result.tokens.end(), response.tokens().begin(), response.tokens().end());
      result.text += response.text();
      if (response.has_step()) result.step = response.step();
      if (response.finish_reason() != 0) result.finish_reason = response.finish_reason();
      if (generated.has_status()) result.status = FromProto(generated.status());
    }
    return result;
  }
  Result Run(const v1::RunGeneration& run) {
    generations_->HandleRun(run);
    return ResultOf(run.generation_id());
  }
  void Train(const std::string& uid, int64_t steps) {
    runner_->HandleRun(Assignment(uid, steps));
    ASSERT_EQ(EndOf(uid), absl::OkStatus());
    Acknowledge(uid);
  }

  // A job that evaluates for a minute before its first step, so that whoever wants its weights
  // waits.
  void StartSlowJob(const std::string& uid) {
    std::ofstream(root_ + "/long") << std::string(32 << 20, 'x');
    v1::RankAssignment slow = Assignment(uid, kEndless);
    slow.mutable_spec()->mutable_data()->set_validation_path("long");
    slow.mutable_spec()->mutable_evaluation()->set_every_steps(1);
    runner_->HandleRun(slow);
    AwaitMatch([](const v1::WorkerMessage& message) { return message.has_groups_formed(); });
  }

  std::unique_ptr<GenerationRunner> generations_;
};

TEST_F(GenerationRunnerTest, AJobThatHasEnded) {
  Train("a", 3);
  EXPECT_EQ(Await(v1::WorkerMessage::kJobEnded, "a").job_ended().weights_kept().code(), 0);
  const Result result = Run(OfJob("1", "a"));
  ASSERT_EQ(result.status, absl::OkStatus());
  EXPECT_THAT(result.tokens, SizeIs(5));
  EXPECT_EQ(result.text, std::string(result.tokens.begin(), result.tokens.end()));
  EXPECT_EQ(result.step, 3);
  EXPECT_EQ(result.finish_reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(device_->arena().usage().current_bytes, 0);
}

// The text that a job samples from its final weights, and the same from the weights it has kept.
TEST_F(GenerationRunnerTest, TheSameTextAsTheJobsOwnSample) {
  for (const v1::Precision precision :
       {v1::PRECISION_FP32, v1::PRECISION_BF16, v1::PRECISION_FP16}) {
    const std::string uid = v1::Precision_Name(precision);
    v1::RankAssignment assignment = Assignment(uid, 20);
    assignment.mutable_spec()->set_precision(precision);
    assignment.mutable_spec()->mutable_sample()->set_prompt("the");
    assignment.mutable_spec()->mutable_sample()->set_max_new_tokens(5);
    assignment.mutable_spec()->mutable_sample()->set_top_p(0.8);
    runner_->HandleRun(assignment);
    ASSERT_EQ(EndOf(uid), absl::OkStatus());
    Acknowledge(uid);
    v1::RunGeneration run = OfJob(uid, uid);
    *run.mutable_spec() = assignment.spec();
    run.mutable_request()->clear_temperature();
    run.mutable_request()->set_top_p(0.8);
    const Result result = Run(run);
    ASSERT_EQ(result.status, absl::OkStatus());
    EXPECT_EQ(result.text, Await(v1::WorkerMessage::kJobEnded, uid).job_ended().sample());
  }
}

TEST_F(GenerationRunnerTest, ARunningJobGoesOn) {
  runner_->HandleRun(Assignment("a", kEndless));
  Await(v1::WorkerMessage::kStep, "a");
  for (const char* id : {"1", "2", "3"}) {
    const Result result = Run(OfJob(id, "a"));
    ASSERT_EQ(result.status, absl::OkStatus());
    EXPECT_THAT(result.tokens, SizeIs(5));
    EXPECT_GE(result.step.value_or(-1), 0);
  }
  EXPECT_EQ(runner_->Running()->job_uid(), "a");
}

TEST_F(GenerationRunnerTest, GeneratingChangesNoStep) {
  Train("alone", 200);
  runner_->HandleRun(Assignment("watched", 200));
  int texts = 0;
  for (bool ended = false; !ended; ++texts) {
    Run(OfJob(std::to_string(texts), "watched"));
    std::lock_guard<std::mutex> lock(mutex_);
    for (const v1::WorkerMessage& message : sent_) {
      ended |= message.job_ended().job_uid() == "watched";
    }
  }
  EXPECT_GT(texts, 1);
  std::vector<double> losses[2];
  std::lock_guard<std::mutex> lock(mutex_);
  for (const v1::WorkerMessage& message : sent_) {
    if (message.has_step())
      losses[message.step().job_uid() == "watched"].push_back(message.step().loss());
  }
  EXPECT_THAT(losses[0], SizeIs(200));
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(GenerationRunnerTest, AFolderOfWeights) {
  Train("a", 3);
  const std::string folder =
      std::filesystem::path(*kept_weights_->Find("a")).lexically_relative(root_);
  const Result of_job = Run(OfJob("1", "a"));
  Result result = Run(OfPath("2", folder));
  EXPECT_THAT(result.status.ToString(),
              HasSubstr("INVALID_ARGUMENT: tokenizer: required with text: there is none with the "
                        "weights; or give the prompt as tokens"));
  v1::RunGeneration run = OfPath("3", folder);
  for (const char byte : std::string("the")) run.mutable_request()->mutable_tokens()->add_ids(byte);
  result = Run(run);
  ASSERT_EQ(result.status, absl::OkStatus());
  EXPECT_EQ(result.tokens, of_job.tokens);
  EXPECT_EQ(result.text, "");
  EXPECT_FALSE(result.step.has_value());
  run.set_generation_id("4");
  run.mutable_request()->set_path(folder + "/model.safetensors");
  EXPECT_EQ(Run(run).tokens, of_job.tokens) << "a single file";
  run = OfPath("5", folder);
  run.mutable_request()->set_tokenizer("bytes");
  EXPECT_EQ(Run(run).text, of_job.text);
}

TEST_F(GenerationRunnerTest, RefusesWhatItCannotDo) {
  Train("a", 3);
  v1::RunGeneration run = OfJob("1", "a");
  run.mutable_request()->set_text("");
  EXPECT_THAT(Run(run).status.ToString(),
              HasSubstr("INVALID_ARGUMENT: prompt: must be at least one token"));
  run = OfJob("2", "a");
  run.mutable_request()->set_text("too long");
  EXPECT_THAT(Run(run).status.ToString(),
              HasSubstr("prompt: 8 tokens: must be fewer than 8, the model's context length"));
  run = OfJob("3", "a");
  run.mutable_request()->mutable_tokens()->add_ids(256);
  EXPECT_THAT(Run(run).status.ToString(), HasSubstr("prompt[0]: 256: must be 0 .. 255"));
  EXPECT_THAT(Run(OfPath("4", "../x")).status.ToString(),
              HasSubstr("INVALID_ARGUMENT: path: ../x: "));
  EXPECT_THAT(Run(OfPath("5", "nowhere")).status.ToString(),
              HasSubstr("NOT_FOUND: path: nowhere: "));
  EXPECT_THAT(Run(OfPath("6", "text")).status.ToString(), HasSubstr("path: text: "));
  EXPECT_THAT(Run(OfJob("7", "unknown")).status.ToString(),
              HasSubstr("NOT_FOUND: trainingJobs/unknown: on workers/w0: its weights are not kept "
                        "(those of the last 2 that succeeded are)"));
  run = OfJob("8", "a");
  run.mutable_request()->set_tokenizer("nowhere");
  EXPECT_THAT(Run(run).status.ToString(), HasSubstr("NOT_FOUND: tokenizer: nowhere: "));
  run = OfJob("9", "a");
  run.mutable_spec()->mutable_data()->set_format(v1::DATA_FORMAT_NANOGPT);
  EXPECT_THAT(Run(run).status.ToString(),
              HasSubstr("tokenizer: required with text: the job's data are tokens"));
  EXPECT_EQ(device_->arena().usage().current_bytes, 0);
}

TEST_F(GenerationRunnerTest, LeavesRoomForTheJob) {
  // All but 17 MiB: the model's few kilobytes fit, a cache of a megabyte more does not.
  const int64_t held = (int64_t{64} << 20) - GenerationRunner::kReservedBytes;
  absl::StatusOr<DeviceBuffer> buffer =
      device_->Allocate(held - 4096, MemoryCategory::kWorkspace, "test");
  Train("a", 3);
  EXPECT_THAT(Run(OfJob("1", "a")).status.ToString(),
              ContainsRegex("RESOURCE_EXHAUSTED: cpu:0: generating needs [0-9]+ bytes more, of "
                            "16781312 that are free and 16777216 that stay so for others"));
}

TEST_F(GenerationRunnerTest, AJobComesFirst) {
  runner_->HandleRun(Assignment("a", kEndless));
  Await(v1::WorkerMessage::kStep, "a");
  {
    SetupGateClosure closure(gate_);
    EXPECT_THAT(Run(OfJob("1", "a")).status.ToString(),
                HasSubstr("UNAVAILABLE: workers/w0: a training job is taking its memory"));
  }
  EXPECT_EQ(Run(OfJob("2", "a")).status, absl::OkStatus());
}

TEST_F(GenerationRunnerTest, OneThatWaitsIsCancelledOrMakesRoom) {
  StartSlowJob("slow");
  generations_->HandleRun(OfJob("1", "slow"));
  generations_->HandleRun(OfJob("2", "slow"));
  v1::CancelGeneration cancel;
  cancel.set_generation_id("1");
  generations_->HandleCancel(cancel);
  EXPECT_TRUE(absl::IsCancelled(ResultOf("1").status)) << ResultOf("1").status;
  {
    SetupGateClosure closure(gate_);  // waits until it has left
    EXPECT_THAT(ResultOf("2").status.ToString(),
                testing::AnyOf(HasSubstr("UNAVAILABLE: workers/w0: makes room for a training job"),
                               HasSubstr("a training job is taking its memory")));
  }
}

TEST_F(GenerationRunnerTest, TooManyAreRefused) {
  StartSlowJob("slow");
  for (int i = 0; i < GenerationRunner::kMaxGenerations; ++i) {
    generations_->HandleRun(OfJob(std::to_string(i), "slow"));
  }
  EXPECT_THAT(Run(OfJob("more", "slow")).status.ToString(),
              HasSubstr("RESOURCE_EXHAUSTED: workers/w0: generates 4 texts already"));
  generations_->CancelAll();
  for (int i = 0; i < GenerationRunner::kMaxGenerations; ++i) {
    EXPECT_TRUE(absl::IsCancelled(ResultOf(std::to_string(i)).status));
  }
  EXPECT_THAT(Run(OfJob("again", "unknown")).status.ToString(), HasSubstr("NOT_FOUND"));
}

}  // namespace
}  // namespace tessera
