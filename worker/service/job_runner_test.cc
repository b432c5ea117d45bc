// One worker's runner with a device of its own and no coordinator.
#include "worker/service/job_runner.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "plan/mesh.h"
#include "proto/rpc/status.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

class JobRunnerTest : public testing::Test {
 protected:
  JobRunnerTest()
      : device_(*CpuDevice::Create("cpu:0", 64 << 20)),
        transport_(hub_.CreateTransport(*device_)),
        log_("test", LogLevel::kError, LogFormat::kText) {
    root_ = testing::TempDir() + "/runnerXXXXXX";
    if (mkdtemp(root_.data()) == nullptr) abort();
    std::ofstream text(root_ + "/text");
    for (int i = 0; i < 500; ++i) text << "the quick brown fox " << i;
    text.close();
    runner_ = std::make_unique<JobRunner>(
        WorkerContext{"workers/w0", root_, root_ + "/exports", device_.get(), transport_.get()},
        &log_, [this](const v1::WorkerMessage& message) {
          std::lock_guard<std::mutex> lock(mutex_);
          sent_.push_back(message);
          changed_.notify_all();
        });
  }

  v1::RankAssignment Assignment(const std::string& uid, int64_t steps) const {
    v1::RankAssignment assignment;
    assignment.set_job("trainingJobs/" + uid);
    assignment.set_job_uid(uid);
    assignment.set_epoch(1);
    v1::TrainingJobSpec& spec = *assignment.mutable_spec();
    spec.mutable_model()->set_family(v1::MODEL_FAMILY_GPT2);
    spec.mutable_model()->set_vocab_size(256);
    spec.mutable_model()->set_context_length(8);
    spec.mutable_model()->set_layers(1);
    spec.mutable_model()->set_heads(2);
    spec.mutable_model()->set_hidden_size(8);
    spec.mutable_data()->set_path("text");
    spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    spec.mutable_data()->set_sequence_length(8);
    spec.mutable_learning_rate()->set_peak(0.01);
    spec.mutable_batch()->set_global_batch_size(2);
    spec.set_steps(steps);
    for (plan::GroupAxis axis : plan::kGroupAxes) {
      const plan::Group group = plan::GroupOf({}, 0, axis);
      v1::GroupAssignment& part = *assignment.add_groups();
      part.set_name(group.name);
      v1::GroupMember& member = *part.add_members();
      member.set_worker("workers/w0");
      member.set_address(transport_->address());
    }
    return assignment;
  }

  // Blocks until a message of this kind about this job has been sent.
  v1::WorkerMessage Await(v1::WorkerMessage::MessageCase kind, const std::string& uid) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      for (const v1::WorkerMessage& message : sent_) {
        if (message.message_case() != kind) continue;
        if (kind == v1::WorkerMessage::kJobEnded && message.job_ended().job_uid() == uid) {
          return message;
        }
        if (kind == v1::WorkerMessage::kStep && message.step().job_uid() == uid) return message;
      }
      changed_.wait(lock);
    }
  }
  void Acknowledge(const std::string& uid) {
    v1::JobEndedAck ack;
    ack.set_job_uid(uid);
    ack.set_epoch(1);
    runner_->HandleJobEndedAck(ack);
  }
  absl::Status EndOf(const std::string& uid) {
    return FromProto(Await(v1::WorkerMessage::kJobEnded, uid).job_ended().status());
  }

  InProcessHub hub_;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Transport> transport_;
  Logger log_;
  std::string root_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::WorkerMessage> sent_;  // guarded by mutex_
  std::unique_ptr<JobRunner> runner_;
};

TEST_F(JobRunnerTest, RunsOneJobAfterAnotherAndGivesMemoryBack) {
  for (const char* uid : {"a", "b"}) {
    runner_->HandleRun(Assignment(uid, 3));
    EXPECT_TRUE(EndOf(uid).ok()) << EndOf(uid);
    EXPECT_EQ(device_->arena().usage().current_bytes, 0);
    Acknowledge(uid);
    EXPECT_FALSE(runner_->Running().has_value());
  }
}

TEST_F(JobRunnerTest, KeepsTheEndUntilItIsAcknowledged) {
  runner_->HandleRun(Assignment("a", 3));
  EXPECT_TRUE(EndOf("a").ok());
  EXPECT_EQ(runner_->Running()->job_uid(), "a");
  const std::vector<v1::WorkerMessage> backlog = runner_->Backlog();
  ASSERT_EQ(backlog.size(), 5u);  // groups_formed, three steps, job_ended
  EXPECT_TRUE(backlog[0].has_groups_formed());
  EXPECT_EQ(backlog[3].step().step(), 3);
  EXPECT_TRUE(backlog[4].has_job_ended());
  Acknowledge("a");
  EXPECT_TRUE(runner_->Backlog().empty());
}

TEST_F(JobRunnerTest, AFailedJobLeavesTheRunnerReady) {
  v1::RankAssignment missing = Assignment("missing", 3);
  missing.mutable_spec()->mutable_data()->set_path("none");
  runner_->HandleRun(missing);
  EXPECT_EQ(EndOf("missing").code(), absl::StatusCode::kNotFound);
  Acknowledge("missing");
  v1::RankAssignment large = Assignment("large", 3);
  large.mutable_spec()->mutable_model()->set_hidden_size(4096);
  runner_->HandleRun(large);
  EXPECT_EQ(EndOf("large").code(), absl::StatusCode::kResourceExhausted);
  Acknowledge("large");
  v1::RankAssignment wrong = Assignment("wrong", 3);
  wrong.mutable_groups(0)->set_name("dp");
  runner_->HandleRun(wrong);
  EXPECT_EQ(EndOf("wrong").code(), absl::StatusCode::kInternal);
  Acknowledge("wrong");
  EXPECT_EQ(device_->arena().usage().current_bytes, 0);
  runner_->HandleRun(Assignment("fine", 3));
  EXPECT_TRUE(EndOf("fine").ok());
}

TEST_F(JobRunnerTest, AbortEndsARunningJobWithItsReason) {
  runner_->HandleRun(Assignment("a", int64_t{1} << 40));
  Await(v1::WorkerMessage::kStep, "a");
  v1::AbortJob abort;
  abort.set_job_uid("a");
  abort.set_epoch(1);
  abort.set_reason("because");
  runner_->HandleAbort(abort);
  EXPECT_EQ(EndOf("a"), absl::AbortedError("because"));
}

TEST_F(JobRunnerTest, AnAssignmentWhileBusyIsRefusedAndARepeatedOneIgnored) {
  runner_->HandleRun(Assignment("a", int64_t{1} << 40));
  Await(v1::WorkerMessage::kStep, "a");
  runner_->HandleRun(Assignment("a", 1));
  runner_->HandleRun(Assignment("b", 1));
  EXPECT_EQ(EndOf("b").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runner_->Running()->job_uid(), "a");
}

TEST_F(JobRunnerTest, AnAbortOfAnUnknownJobIsAnswered) {
  v1::AbortJob abort;
  abort.set_job_uid("unknown");
  abort.set_epoch(7);
  runner_->HandleAbort(abort);
  EXPECT_EQ(EndOf("unknown").code(), absl::StatusCode::kAborted);
}

TEST_F(JobRunnerTest, StopEndsTheJob) {
  runner_->HandleRun(Assignment("a", int64_t{1} << 40));
  Await(v1::WorkerMessage::kStep, "a");
  runner_->Stop(absl::CancelledError("asked to stop"), absl::Milliseconds(1));
  EXPECT_EQ(EndOf("a").code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tessera
