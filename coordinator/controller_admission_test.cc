// Which jobs get workers: by what they need of devices, hosts and disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "coordinator/controller_testing.h"
#include "coordinator/job_memory.h"
#include "coordinator/layout_advice.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

// What a rank of Request(_, dp) needs, the same for any dp above 1.
int64_t NeededBytes(int dp) {
  return JobMemory(Request("", dp).training_job().spec(), 1).Needed(0).total_bytes();
}

class ControllerAdmissionTest : public ControllerTest {
 protected:
  static bool WasAsked(const TestWorker& worker) {
    return worker.session->Last(v1::CoordinatorMessage::kCheckData).has_check_data() ||
           worker.session->Last(v1::CoordinatorMessage::kRun).has_run();
  }
};

TEST_F(ControllerAdmissionTest, AJobForWhichTheWorkersAreTooSmallIsRefused) {
  const int64_t bytes = NeededBytes(2);
  TestWorker w0 = AttachWithMemory("w0", bytes), w1 = AttachWithMemory("w1", bytes - 1);
  for (const bool validate_only : {false, true}) {
    v1::CreateTrainingJobRequest request = Request("a", 2);
    request.set_validate_only(validate_only);
    const absl::Status status = Create(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(ReasonOf(status), "INSUFFICIENT_DEVICE_MEMORY");
    EXPECT_THAT(std::string(status.message()), HasSubstr("pp_rank 0 needs"));
  }
  EXPECT_TRUE(absl::IsNotFound(controller_->GetJob("trainingJobs/a").status()));
  EXPECT_FALSE(WasAsked(w0) || WasAsked(w1));
  // Busy or not, a third one that is large enough makes it possible.
  AttachWithMemory("w2", bytes);
  EXPECT_FALSE(absl::IsResourceExhausted(Create(Request("a", 2)).status()));
}

// A tier other than the device.
struct TierCase {
  const char* name;
  v1::Tier offload_to;
  int64_t TierBytes::*bytes;  // what is short
  const char* reason;
  const char* kind;
  const char* purpose;
};
constexpr TierCase kTierCases[] = {
    {"host", v1::TIER_HOST, &TierBytes::host, "INSUFFICIENT_HOST_MEMORY", "host memory",
     "offloaded state and the buffers through which it passes"},
    {"host beside nvme", v1::TIER_NVME, &TierBytes::host, "INSUFFICIENT_HOST_MEMORY", "host memory",
     "offloaded state and the buffers through which it passes"},
    {"nvme", v1::TIER_NVME, &TierBytes::nvme, "INSUFFICIENT_NVME_SPACE", "nvme space",
     "offloaded state, two steps of what is committed"},
};

class ControllerTierAdmissionTest : public ControllerAdmissionTest,
                                    public testing::WithParamInterface<TierCase> {
 protected:
  static v1::CreateTrainingJobRequest Offloading(const std::string& id) {
    v1::CreateTrainingJobRequest request = Request(id, 2);
    v1::TrainingJobSpec& spec = *request.mutable_training_job()->mutable_spec();
    spec.mutable_offload()->mutable_optimizer()->set_tier(GetParam().offload_to);
    return request;
  }
  // Of each rank.
  static TierBytes Needs() { return JobMemory(Offloading("").training_job().spec(), 1).Needs()[0]; }
  static TierBytes OneByteShort() {
    TierBytes has = Needs();
    has.*GetParam().bytes -= 1;
    return has;
  }
  static std::string Text() {
    const int64_t needed = Needs().*GetParam().bytes;
    return absl::StrCat(
        GetParam().kind, ": pp_rank 0 needs ", BytesText(needed), " (", GetParam().purpose,
        "); 2 of 2 ranks need as much, 1 of 2 attached workers have as much, the "
        "largest has ",
        BytesText(needed), "; workers/w1 has ", BytesText(needed - 1), " of ", GetParam().kind);
  }
};

TEST_P(ControllerTierAdmissionTest, AJobForWhichOneWorkerHasTooLittleIsRefused) {
  TestWorker w0 = AttachWithTiers("w0", Needs()), w1 = AttachWithTiers("w1", OneByteShort());
  const absl::Status status = Create(Offloading("a")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(ReasonOf(status), GetParam().reason);
  EXPECT_THAT(std::string(status.message()), testing::StartsWith(Text()));
  EXPECT_TRUE(absl::IsNotFound(controller_->GetJob("trainingJobs/a").status()));
  EXPECT_FALSE(WasAsked(w0) || WasAsked(w1));
  AttachWithTiers("w2", Needs());
  EXPECT_FALSE(absl::IsResourceExhausted(Create(Offloading("a")).status()));
}

TEST_P(ControllerTierAdmissionTest, AJobThatCameBeforeItsWorkersWaitsAndNamesTheOneThatIsShort) {
  ASSERT_TRUE(Create(Offloading("a")).ok());
  AttachWithTiers("w0", Needs());
  AttachWithTiers("w1", OneByteShort());
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(LastCondition("a").reason(), GetParam().reason);
  EXPECT_EQ(LastCondition("a").message(), Text());
  AttachWithTiers("w2", Needs());
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

INSTANTIATE_TEST_SUITE_P(, ControllerTierAdmissionTest, testing::ValuesIn(kTierCases),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param.name, {{" ", "_"}});
                         });

TEST_F(ControllerAdmissionTest, WhatIsFreeOnADiskIsToldNowAndThen) {
  const v1::CreateTrainingJobRequest request = CommittingRequest("a", 2);
  const TierBytes needs = JobMemory(request.training_job().spec(), 1).Needs()[0];
  ASSERT_TRUE(Create(request).ok());
  AttachWithTiers("w0", needs);
  TestWorker w1 = AttachWithTiers("w1", {needs.device, needs.host, 0});
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("workers/w1 has 0 B (0 bytes)"));
  const int64_t revision = Status("a").revision();
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat()->set_nvme_free_bytes(1);
  controller_->HandleWorkerMessage(w1.id, heartbeat);
  Advance(absl::Seconds(9));
  EXPECT_EQ(Status("a").revision(), revision);
  Advance(absl::Seconds(1));
  EXPECT_THAT(LastCondition("a").message(), HasSubstr("workers/w1 has 1 B (1 bytes)"));
  EXPECT_EQ(Status("a").conditions_size(), 2);
}

// Its own state is there already, so that room for the other of two steps is enough.
TEST_F(ControllerAdmissionTest, AJobIsNotResumedOntoADiskThatIsFull) {
  const v1::CreateTrainingJobRequest request = CommittingRequest("a", 1);
  const TierBytes needs = JobMemory(request.training_job().spec(), 1).Needs()[0];
  ASSERT_TRUE(Create(request).ok());
  TestWorker w0 = AttachWithTiers("w0", needs);
  Formed(w0);
  Suspend("a");
  Suspended(w0, 5);
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat()->set_nvme_free_bytes(needs.nvme / 2 - 1);
  controller_->HandleWorkerMessage(w0.id, heartbeat);
  Resume("a");
  EXPECT_EQ(State("a"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(LastCondition("a").reason(), "INSUFFICIENT_NVME_SPACE");
  EXPECT_EQ(LastCondition("a").message(),
            absl::StrCat("nvme space: global_rank 0 needs ", BytesText(needs.nvme),
                         ", workers/w0, which holds its state, has ", BytesText(needs.nvme - 1)));
  heartbeat.mutable_heartbeat()->set_nvme_free_bytes(needs.nvme / 2);
  controller_->HandleWorkerMessage(w0.id, heartbeat);
  Advance(absl::Milliseconds(50));
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerAdmissionTest, AVerificationIsRefusedForItsWholeModel) {
  v1::VerifyTrainingJobRequest request;
  request.set_training_job_id("v");
  request.set_steps(1);
  *request.mutable_spec() = Request("v", 1).training_job().spec();
  request.mutable_spec()->mutable_model()->set_layers(4);
  request.mutable_spec()->mutable_model()->set_hidden_size(256);
  request.mutable_spec()->mutable_mesh()->set_pp(2);
  v1::TrainingJobSpec spec = request.spec();
  const int64_t largest_stage = std::max(JobMemory(spec, 1).Needed(0).total_bytes(),
                                         JobMemory(spec, 1).Needed(1).total_bytes());
  AttachWithMemory("w0", largest_stage);
  AttachWithMemory("w1", largest_stage);
  const absl::Status status = Verify(request).status();
  EXPECT_EQ(ReasonOf(status), "INSUFFICIENT_DEVICE_MEMORY") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the whole model"));
}

TEST_F(ControllerAdmissionTest, AJobThatCameBeforeItsWorkersWaitsAndSaysSoOnce) {
  const int64_t bytes = NeededBytes(2);
  ASSERT_TRUE(Create(Request("a", 2)).ok());
  EXPECT_EQ(Status("a").conditions(0).message(), "waits for 2 workers; 0 are attached");
  AttachWithMemory("w0", bytes);
  EXPECT_EQ(Status("a").conditions_size(), 1);
  AttachWithMemory("w1", bytes - 1);
  const int64_t revision = Status("a").revision();
  for (int i = 0; i < 10; ++i) Advance(absl::Milliseconds(50));
  ASSERT_EQ(Status("a").conditions_size(), 2);
  EXPECT_EQ(Status("a").revision(), revision);
  EXPECT_EQ(Status("a").state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Status("a").conditions(1).reason(), "INSUFFICIENT_DEVICE_MEMORY");
  EXPECT_THAT(Status("a").conditions(1).message(),
              HasSubstr("1 of 2 attached workers have as much"));
  // Also after a restart.
  Restart();
  AttachWithMemory("w0", bytes);
  AttachWithMemory("w1", bytes - 1);
  EXPECT_EQ(Status("a").conditions_size(), 2);
  AttachWithMemory("w2", bytes);
  EXPECT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerAdmissionTest, AJobForWhichTheWorkersAreTooSmallHoldsUpNoOther) {
  ASSERT_TRUE(Create(Request("large", 2)).ok());
  clock_.elapsed += absl::Seconds(1);
  v1::CreateTrainingJobRequest small = Request("small", 2);
  small.mutable_training_job()->mutable_spec()->mutable_batch()->set_micro_batches(6);
  ASSERT_TRUE(Create(small).ok());
  const int64_t bytes = JobMemory(small.training_job().spec(), 1).Needed(0).total_bytes();
  ASSERT_LT(bytes, NeededBytes(2));
  AttachWithMemory("w0", bytes);
  AttachWithMemory("w1", bytes);
  EXPECT_EQ(State("large"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(State("small"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerAdmissionTest, AJobThatWaitsForABusyWorkerIsNotOvertaken) {
  ASSERT_TRUE(Create(Request("first", 1)).ok());
  TestWorker large = AttachWithMemory("w0", 1 << 30);
  ASSERT_EQ(State("first"), v1::JOB_STATE_ADMITTED);
  controller_->DetachWorker(large.id);  // so that jobs are created without a look at files
  ASSERT_TRUE(Create(Request("second", 1)).ok());
  clock_.elapsed += absl::Milliseconds(1);
  ASSERT_TRUE(Create(Request("third", 1)).ok());
  large = *TryAttach("w0", large.instance, RunningOf(large));
  AttachWithMemory("w1", 1000);
  EXPECT_EQ(State("second"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Status("second").conditions_size(), 1);
}

TEST_F(ControllerAdmissionTest, PredictedStandsBesideMeasured) {
  ASSERT_TRUE(Create(Request("a", 2)).ok());
  EXPECT_TRUE(Status("a").memory().empty());
  TestWorker w0 = Attach("w0"), w1 = Attach("w1");
  ASSERT_EQ(Status("a").memory_size(), 2);
  EXPECT_EQ(Status("a").memory(1).global_rank(), 1);
  EXPECT_EQ(Status("a").memory(1).predicted().total_bytes(), NeededBytes(2));
  EXPECT_FALSE(Status("a").memory(1).has_measured());
  Formed(w0);
  Formed(w1);

  v1::WorkerMessage message;
  v1::MemoryReport& report = *message.mutable_memory();
  report.set_job_uid(RunningOf(w1).job_uid());
  report.mutable_peak()->set_total_bytes(77);
  controller_->HandleWorkerMessage(w1.id, message);  // of a past epoch
  EXPECT_FALSE(Status("a").memory(1).has_measured());
  report.set_epoch(RunningOf(w1).epoch());
  controller_->HandleWorkerMessage(w1.id, message);
  EXPECT_EQ(Status("a").memory(1).measured().total_bytes(), 77);
  EXPECT_FALSE(Status("a").memory(0).has_measured());
  // Journaled at the next tick, so a restart keeps it.
  Advance(absl::Seconds(1));
  Restart();
  EXPECT_EQ(Status("a").memory(1).measured().total_bytes(), 77);
}

}  // namespace
}  // namespace tessera
