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
  ASSERT_EQ(backlog.size(), 6u);  // groups_formed, memory, three steps, job_ended
  EXPECT_TRUE(backlog[0].has_groups_formed());
  EXPECT_TRUE(backlog[1].has_memory());
  EXPECT_EQ(backlog[4].step().step(), 3);
  EXPECT_TRUE(backlog[5].has_job_ended());
  Acknowledge("a");
  EXPECT_TRUE(runner_->Backlog().empty());
}

TEST_F(JobRunnerTest, ReportsThePeaksOfItsOwnDeviceMemory) {
  // What was there before the job does not count.
  const int64_t before = *device_->arena().Allocate(1 << 20, MemoryCategory::kOptimizer, "before");
  device_->arena().Free(before);
  runner_->HandleRun(Assignment("a", 2));
  ASSERT_TRUE(EndOf("a").ok());
  const v1::MemoryReport report =
      AwaitMatch([](const v1::WorkerMessage& message) { return message.has_memory(); }).memory();
  EXPECT_EQ(report.job_uid(), "a");
  EXPECT_EQ(report.epoch(), 1);
  const v1::DeviceMemory& peak = report.peak();
  // gpt2 with one layer, C = 8, F = 32, V = 256, T = 8, in units padded to multiples of 32 elements
  // per parameter: embedding 2048 + 64, layer 32*2 + 192 + 32 + 64 + 32 + 32*2 + 256 + 32 + 256 +
  // 32, head 32*2; fp32.
  const int64_t parameters = 4 * (2048 + 64 + 1024 + 64);
  EXPECT_EQ(peak.parameters_bytes(), parameters);
  EXPECT_EQ(peak.gradients_bytes(), parameters);
  EXPECT_EQ(peak.optimizer_bytes(), 2 * parameters);
  EXPECT_GT(peak.activations_bytes(), 0);
  EXPECT_GE(peak.total_bytes(), peak.parameters_bytes() + peak.gradients_bytes() +
                                    peak.optimizer_bytes() + peak.activations_bytes());
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

// The others of a group may share none with the rank that was lost first.
TEST_F(JobRunnerTest, AFailedRankTellsAllItsGroupsWhy) {
  const auto device = *CpuDevice::Create("cpu:1", 1 << 20);
  const auto stream = *device->CreateStream();
  const std::unique_ptr<Transport> transport = hub_.CreateTransport(*device);
  v1::RankAssignment assignment = Assignment("split", 3);
  const plan::MeshSize mesh{.dp = 2};
  assignment.mutable_spec()->mutable_mesh()->set_dp(2);
  assignment.clear_groups();
  std::vector<GroupSpec> shared;  // dp, zero
  for (plan::GroupAxis axis : plan::kGroupAxes) {
    const plan::Group group = plan::GroupOf(mesh, 0, axis);
    v1::GroupAssignment& part = *assignment.add_groups();
    part.set_name(group.name);
    GroupSpec spec;
    spec.name = group.name;
    spec.job_uid = "split";
    spec.epoch = 1;
    spec.group_rank = 1;
    for (const int rank : group.members) {
      v1::GroupMember& member = *part.add_members();
      member.set_global_rank(rank);
      member.set_worker(rank == 0 ? "workers/w0" : "workers/w1");
      member.set_address((rank == 0 ? transport_ : transport)->address());
      spec.members.push_back({rank, member.worker(), member.address()});
    }
    if (spec.members.size() == 2) shared.push_back(spec);
  }
  ASSERT_EQ(shared.size(), 2u);
  runner_->HandleRun(assignment);
  const auto dp = *transport->Join(shared[0]);
  const auto zero = *transport->Join(shared[1]);
  // A step begins with all ranks' wishes.
  zero->Abort(absl::UnavailableError("workers/w2 is gone"));
  EXPECT_EQ(EndOf("split").code(), absl::StatusCode::kUnavailable) << EndOf("split");
  const absl::Status told = dp->Barrier(*stream);
  EXPECT_EQ(told.code(), absl::StatusCode::kAborted) << told;
  for (const char* part : {"workers/w0 failed: ", "in group zero", "workers/w2 is gone"}) {
    EXPECT_NE(told.message().find(part), absl::string_view::npos) << told;
  }
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
