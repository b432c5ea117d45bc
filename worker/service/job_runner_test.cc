// Jobs of one worker, one after another.
#include "worker/service/job_runner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/service/worker_testing.h"

namespace tessera {
namespace {

class JobRunnerTest : public WorkerTest {};

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
