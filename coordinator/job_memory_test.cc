#include "coordinator/job_memory.h"

#include <gtest/gtest.h>

#include "coordinator/controller_testing.h"

namespace tessera {
namespace {

v1::TrainingJobSpec Spec() {
  v1::TrainingJobSpec spec = Request("", 2).training_job().spec();
  spec.mutable_model()->set_layers(4);
  spec.mutable_model()->set_heads(2);
  spec.mutable_model()->set_hidden_size(256);
  spec.mutable_mesh()->set_pp(2);
  spec.mutable_mesh()->set_tp(2);
  return spec;
}

int64_t Total(const plan::RankLedger& ledger) { return ledger.total_bytes(); }

TEST(JobMemory, RanksOfAStageNeedTheSame) {
  const JobMemory memory(Spec(), 1);
  std::vector<int64_t> bytes;
  for (const TierBytes& needs : memory.Needs()) bytes.push_back(needs.device);
  ASSERT_EQ(bytes.size(), 8u);
  // Ranks are (dp, pp, tp).
  for (const int rank : {1, 4, 5}) EXPECT_EQ(bytes[rank], bytes[0]) << rank;
  for (const int rank : {3, 6, 7}) EXPECT_EQ(bytes[rank], bytes[2]) << rank;
  EXPECT_NE(bytes[0], bytes[2]);
  EXPECT_EQ(Total(memory.Fullest(0)), bytes[0]);
  EXPECT_EQ(Total(memory.Fullest(1)), bytes[2]);
}

TEST(JobMemory, TheFirstReplicaSamples) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_sample()->set_prompt("x");
  spec.mutable_sample()->set_max_new_tokens(4);
  const JobMemory memory(spec, 1);
  const JobMemory without(Spec(), 1);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_GT(Total(memory.OfLayout(rank)), Total(without.OfLayout(rank))) << rank;
  }
  for (int rank = 4; rank < 8; ++rank) {
    EXPECT_EQ(Total(memory.OfLayout(rank)), Total(without.OfLayout(rank))) << rank;
  }
  spec.set_zero_stage(3);  // all ranks gather for it
  const JobMemory sharded(spec, 1);
  EXPECT_EQ(Total(sharded.OfLayout(4)), Total(sharded.OfLayout(0)));
}

TEST(JobMemory, TheFirstRankTraces) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_batch()->set_global_batch_size(2 * 4096);
  spec.mutable_batch()->set_micro_batches(4096);
  const JobMemory without(spec, 1);
  spec.mutable_trace()->set_step(1);
  const JobMemory memory(spec, 1);
  for (const int rank : {0, 2}) {  // tp_rank 0 of both stages
    EXPECT_GT(Total(memory.OfLayout(rank)), Total(without.OfLayout(rank))) << rank;
  }
  for (const int rank : {1, 3, 4}) {
    EXPECT_EQ(Total(memory.OfLayout(rank)), Total(without.OfLayout(rank))) << rank;
  }
}

TEST(JobMemory, AVerificationNeedsTheWholeModelOnTheFirstRank) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_verification();
  const JobMemory memory(spec, 1);
  EXPECT_TRUE(memory.NeedsWholeModel(0));
  EXPECT_FALSE(memory.NeedsWholeModel(1));
  v1::TrainingJobSpec one = Spec();
  one.clear_mesh();
  one.mutable_batch()->set_micro_batches(2);
  EXPECT_EQ(Total(memory.Needed(0)), Total(JobMemory(one, 1).Needed(0)));
  EXPECT_EQ(Total(memory.Fullest(0)), Total(memory.Needed(0)));
  EXPECT_EQ(Total(memory.OfLayout(0)), Total(memory.OfLayout(1)));
  EXPECT_EQ(Total(memory.Needed(1)), Total(memory.OfLayout(1)));
}

TEST(JobMemory, ThreadsHaveWorkspacesOfTheirOwn) {
  v1::TrainingJobSpec spec = Spec();
  EXPECT_GE(Total(JobMemory(spec, 8).Needed(0)), Total(JobMemory(spec, 1).Needed(0)));
  EXPECT_EQ(JobMemory(spec, 8).num_threads(), 8);
}

TEST(JobMemory, OtherTiersAreAMessageOnlyWhereTheyAreUsed) {
  plan::RankLedger ledger;
  EXPECT_FALSE(TiersToProto(ledger).has_value());
  ledger.host_bytes = 7;
  ledger.nvme_bytes = 8;
  EXPECT_EQ(TiersToProto(ledger)->host_bytes(), 7);
  EXPECT_EQ(TiersToProto(ledger)->nvme_bytes(), 8);
}

TEST(JobMemory, BecomesAMessage) {
  plan::RankLedger ledger;
  ledger.peak_bytes = {1, 2, 3, 4, 5, 6};
  const v1::DeviceMemory memory = ToProto(ledger);
  EXPECT_EQ(memory.parameters_bytes(), 1);
  EXPECT_EQ(memory.gradients_bytes(), 2);
  EXPECT_EQ(memory.optimizer_bytes(), 3);
  EXPECT_EQ(memory.activations_bytes(), 4);
  EXPECT_EQ(memory.communication_bytes(), 5);
  EXPECT_EQ(memory.workspace_bytes(), 6);
  EXPECT_EQ(memory.total_bytes(), 21);
}

}  // namespace
}  // namespace tessera
