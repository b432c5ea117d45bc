// What is told about a job for which the workers are too small, and which layouts it is offered.
#include "coordinator/memory_shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "coordinator/controller_testing.h"
#include "coordinator/layout_advice.h"
#include "coordinator/spec_validation.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// dp=2; most of it is optimizer state.
v1::TrainingJobSpec Spec() {
  v1::TrainingJobSpec spec = Request("", 2).training_job().spec();
  spec.mutable_model()->set_layers(8);
  spec.mutable_model()->set_heads(2);
  spec.mutable_model()->set_hidden_size(256);
  spec.mutable_batch()->set_global_batch_size(4);
  return spec;
}

std::vector<Candidate> Workers(const std::vector<TierBytes>& has) {
  std::vector<Candidate> workers;
  for (const TierBytes& each : has) {
    workers.push_back({absl::StrCat("workers/w", workers.size()), "h", each});
  }
  return workers;
}

// Workers of which only the devices are small.
std::vector<TierBytes> Devices(const std::vector<int64_t>& bytes) {
  std::vector<TierBytes> devices;
  for (const int64_t each : bytes) devices.push_back({each, int64_t{1} << 40, int64_t{1} << 40});
  return devices;
}

absl::Status Refusal(const v1::TrainingJobSpec& spec, const std::vector<int64_t>& device_bytes) {
  const JobMemory memory(spec, 1);
  const std::vector<TierBytes> has = Devices(device_bytes);
  return InsufficientMemory(spec, memory, FindShortage(memory.Needs(), has).value(), Workers(has));
}

TEST(MemoryShortageTest, NamesTheRankItsCategoriesAndTheLargestDevice) {
  const JobMemory memory(Spec(), 1);
  const int64_t needed = memory.Needed(0).needed_bytes();
  const absl::Status status = Refusal(Spec(), {needed - 1, needed, 1000});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "INSUFFICIENT_DEVICE_MEMORY");
  EXPECT_THAT(std::string(status.message()),
              StartsWith(absl::StrCat("device memory: pp_rank 0 needs ", BytesText(needed),
                                      " (parameters ")));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(absl::StrCat("); 2 of 2 ranks need as much, 1 of 3 attached workers have as much, "
                             "the largest has ",
                             BytesText(needed))));
}

TEST(MemoryShortageTest, OffersTheNearestLayoutsAsTextOfAJobFile) {
  const int64_t needed = JobMemory(Spec(), 1).Needed(0).needed_bytes();
  const std::vector<std::string> layouts =
      LayoutsThatFit(Spec(), Devices(std::vector<int64_t>(2, needed - 1000000)), 1);
  ASSERT_FALSE(layouts.empty());
  v1::TrainingJobSpec sharded = Spec();
  sharded.set_zero_stage(1);
  EXPECT_THAT(
      layouts,
      testing::Contains(absl::StrCat(
          "# pp_rank 0 needs most: ", BytesText(JobMemory(sharded, 1).Needed(0).needed_bytes()),
          ": ", CategoriesText(JobMemory(sharded, 1).Needed(0)), "\nzero_stage: 1\n")));
  EXPECT_THAT(std::string(Refusal(Spec(), std::vector<int64_t>(2, needed - 1000000)).message()),
              HasSubstr("as lines of the job file:\n" + layouts[0]));
}

TEST(MemoryShortageTest, OffersAMeshWhole) {
  v1::TrainingJobSpec spec = Spec();
  spec.clear_mesh();
  const int64_t needed = JobMemory(spec, 1).Needed(0).needed_bytes();
  const std::vector<std::string> layouts =
      LayoutsThatFit(spec, Devices(std::vector<int64_t>(4, needed * 2 / 3)), 1);
  EXPECT_THAT(layouts, testing::Contains(HasSubstr("\nmesh: {dp: 1, cp: 1, pp: 1, tp: 2}\n")));
}

TEST(MemoryShortageTest, OffersAPartitionThatAnotherNumberOfStagesCanHave) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_chunk_layers()->Add(8);
  const int64_t needed = JobMemory(spec, 1).Needed(0).needed_bytes();
  int with_stages = 0;
  for (const int64_t percent : {95, 80, 60, 40, 30}) {
    for (const std::string& layout :
         LayoutsThatFit(spec, Devices(std::vector<int64_t>(8, needed * percent / 100)), 1)) {
      const bool has_stages =
          absl::StrContains(layout, "pp: ") && !absl::StrContains(layout, "pp: 1");
      EXPECT_EQ(absl::StrContains(layout, "chunk_layers: []\n"), has_stages) << layout;
      with_stages += has_stages ? 1 : 0;
    }
  }
  EXPECT_GT(with_stages, 0);
}

// before_reduce clips whole gradients, which are there only once a step.
TEST(MemoryShortageTest, OffersNothingThatWouldBeRefused) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
  const int64_t needed = JobMemory(spec, 1).Needed(0).needed_bytes();
  for (const int64_t percent : {95, 80, 60, 40, 30}) {
    for (const std::string& layout :
         LayoutsThatFit(spec, Devices(std::vector<int64_t>(8, needed * percent / 100)), 1)) {
      EXPECT_THAT(layout, Not(HasSubstr("cp: 2"))) << layout;
    }
  }
}

TEST(MemoryShortageTest, SaysWhenNothingFits) {
  EXPECT_THAT(std::string(Refusal(Spec(), {1000, 1000}).message()),
              HasSubstr("; no layout nearby fits"));
}

TEST(MemoryShortageTest, AVerificationNeedsTheWholeModelWhateverTheLayout) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_mesh()->set_dp(1);
  spec.mutable_mesh()->set_pp(2);
  spec.mutable_verification();
  const int64_t needed = JobMemory(spec, 1).Needed(1).needed_bytes();
  const std::string message(Refusal(spec, {needed + 1000, needed + 1000}).message());
  EXPECT_THAT(message, HasSubstr("(the whole model, which global_rank 0 verifies against; param"));
  EXPECT_THAT(message, HasSubstr("no layout nearby fits"));
}

TEST(MemoryShortageTest, NamesTheTierThatIsShort) {
  const JobMemory memory(Spec(), 1);
  MemoryShortage shortage;
  shortage.needed_bytes = 7;
  shortage.ranks = 2;
  shortage.largest_bytes = 5;
  struct Case {
    plan::Tier tier;
    const char* reason;
    const char* text;
  };
  const Case cases[] = {
      {plan::Tier::kHost, "INSUFFICIENT_HOST_MEMORY", "host memory: pp_rank 0 needs 7 B (7 bytes)"},
      {plan::Tier::kNvme, "INSUFFICIENT_NVME_SPACE", "nvme space: pp_rank 0 needs 7 B (7 bytes)"},
  };
  for (const Case& c : cases) {
    shortage.tier = c.tier;
    EXPECT_EQ(ShortageReason(c.tier), c.reason);
    const std::vector<Candidate> workers = Workers({{}, {}, {}});
    const std::string text = ShortageText(memory, shortage, workers);
    EXPECT_THAT(text, StartsWith(c.text));
    EXPECT_THAT(text, HasSubstr("0 of 3 attached workers have as much, the largest has 5 B"));
    shortage.is_combined = true;
    EXPECT_THAT(ShortageText(memory, shortage, workers),
                HasSubstr("have as much besides all else that the rank needs"));
    shortage.is_combined = false;
  }
}

TEST(MemoryShortageTest, NamesTheWorkersThatAreTooSmall) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_offload()->mutable_optimizer()->set_tier(v1::TIER_NVME);
  const JobMemory memory(spec, 1);
  const TierBytes enough = memory.Needs()[0];
  auto with = [&](plan::Tier tier, int64_t bytes) {
    TierBytes has = enough;
    (tier == plan::Tier::kDevice ? has.device
     : tier == plan::Tier::kHost ? has.host
                                 : has.nvme) = bytes;
    return has;
  };
  auto text = [&](const std::vector<TierBytes>& has) {
    return ShortageText(memory, FindShortage(memory.Needs(), has).value(), Workers(has));
  };
  using plan::Tier;
  EXPECT_THAT(text({enough, with(Tier::kHost, 5)}),
              EndsWith("; workers/w1 has 5 B (5 bytes) of host memory"));
  EXPECT_THAT(text({with(Tier::kNvme, 6), with(Tier::kNvme, 7)}),
              EndsWith("; workers/w0 has 6 B (6 bytes) of nvme space, workers/w1 has 7 B (7 bytes) "
                       "of nvme space"));
  // Each tier is on two workers, but not on the same two.
  EXPECT_THAT(text({with(Tier::kDevice, 5), with(Tier::kHost, 6), enough}),
              EndsWith("; workers/w0 has 5 B (5 bytes) of device memory, workers/w1 has 6 B (6 "
                       "bytes) of host memory"));
  EXPECT_THAT(text(std::vector<TierBytes>(7, with(Tier::kNvme, 6))),
              EndsWith("workers/w3 has 6 B (6 bytes) of nvme space and 3 more have too little"));
}

TEST(MemoryShortageTest, NamesTheWorkerThatHoldsTheStateAndIsTooSmall) {
  const Candidate worker = {"workers/w0", "h", {10, 10, 10}};
  EXPECT_FALSE(FindShortfall(worker, 1, {10, 10, 10}).has_value());
  const WorkerShortfall shortfall = *FindShortfall(worker, 1, {10, 10, 11});
  EXPECT_EQ(shortfall.tier, plan::Tier::kNvme);
  EXPECT_EQ(shortfall.message,
            "nvme space: global_rank 1 needs 11 B (11 bytes), workers/w0, which holds its state, "
            "has 10 B (10 bytes)");
}

TEST(OffloadAdviceTest, IsTheLeastThatFits) {
  const int64_t needed = JobMemory(Spec(), 1).Needed(0).needed_bytes();
  // Enough as it is: the first that is tried.
  EXPECT_THAT(OffloadsThatFit(Spec(), Devices({needed, needed}), 1),
              testing::ElementsAre(testing::EndsWith("\noffload: {optimizer: {tier: host}}\n"),
                                   testing::EndsWith("\noffload: {optimizer: {tier: nvme}}\n")));
  // What is offloaded already stays so.
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_offload()->mutable_optimizer()->set_tier(v1::TIER_NVME);
  spec.mutable_offload()->mutable_gradients()->set_tier(v1::TIER_HOST);
  spec.mutable_offload()->mutable_gradients()->set_fraction(0.5);
  spec.mutable_offload()->set_buffers(4);
  EXPECT_THAT(OffloadsThatFit(spec, Devices({needed, needed}), 1)[0],
              testing::EndsWith("\noffload: {optimizer: {tier: nvme}, gradients: {tier: host, "
                                "fraction: 0.5}, buffers: 4}\n"));
  EXPECT_THAT(OffloadsThatFit(Spec(), Devices({1000, 1000}), 1), testing::IsEmpty());
}

TEST(OffloadAdviceTest, Gpt2OnTwoFifthsOfTheDeviceItNeeds) {
  v1::TrainingJobSpec spec = Request("", 1).training_job().spec();
  spec.mutable_model()->set_vocab_size(50257);
  spec.mutable_model()->set_context_length(1024);
  spec.mutable_model()->set_layers(12);
  spec.mutable_model()->set_heads(12);
  spec.mutable_model()->set_hidden_size(768);
  spec.mutable_data()->set_sequence_length(128);
  spec.mutable_batch()->set_global_batch_size(1);
  const int64_t needed = JobMemory(spec, 1).Needed(0).needed_bytes();
  const absl::Status status = Refusal(spec, {needed * 2 / 5});
  EXPECT_THAT(std::string(status.message()), HasSubstr("offload: {optimizer: {tier: host}"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("offload: {optimizer: {tier: nvme}"));
}

}  // namespace
}  // namespace tessera
