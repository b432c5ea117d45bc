#include "cli/memory_report.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

// parameters: base; the others follow at distances of 1000.
v1::DeviceMemory Memory(int64_t base) {
  v1::DeviceMemory memory;
  memory.set_parameters_bytes(base);
  memory.set_gradients_bytes(base + 1000);
  memory.set_optimizer_bytes(base + 2000);
  memory.set_activations_bytes(base + 3000);
  memory.set_communication_bytes(0);
  memory.set_workspace_bytes(100);
  memory.set_total_bytes(4 * base + 6100);
  return memory;
}

// Two ranks; rank 1 holds more.
v1::TrainingJobStatus TwoRanks() {
  v1::TrainingJobStatus status;
  for (int i = 0; i < 2; ++i) {
    v1::RankMemory& rank = *status.add_memory();
    rank.set_global_rank(i);
    *rank.mutable_predicted() = Memory(10000 * (i + 1));
  }
  v1::DeviceMemory& measured = *status.mutable_memory(1)->mutable_measured();
  measured = Memory(20000);
  measured.set_activations_bytes(22540);  // of 23000
  measured.set_communication_bytes(128);
  measured.set_total_bytes(85000);
  return status;
}

TEST(MemoryReport, ShowsThePeaksOfTheRankThatHoldsMost) {
  EXPECT_EQ(JobMemoryTable(TwoRanks(), /*wide=*/false),
            "RANK  CATEGORY       PREDICTED        MEASURED         DIFFERENCE\n"
            "1     parameters     20 kB (20000)    20 kB (20000)    equal\n"
            "1     gradients      21 kB (21000)    21 kB (21000)    equal\n"
            "1     optimizer      22 kB (22000)    22 kB (22000)    equal\n"
            "1     activations    23 kB (23000)    22.5 kB (22540)  -2%\n"
            "1     communication  0 B              128 B            +128 bytes\n"
            "1     workspace      100 B            100 B            equal\n"
            "1     total          86.1 kB (86100)  85 kB (85000)    -1.3%\n");
}

TEST(MemoryReport, ShowsAllRanksAndWhatIsNotYetMeasured) {
  const std::string text = JobMemoryTable(TwoRanks(), /*wide=*/true);
  EXPECT_NE(text.find("\n0     total          46.1 kB (46100)  -                -\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n1     total "), std::string::npos) << text;
}

TEST(MemoryReport, ShowsOtherTiersWhereTheyAreUsed) {
  v1::TrainingJobStatus status = TwoRanks();
  status.mutable_memory(1)->mutable_predicted_tiers()->set_host_bytes(5000);
  status.mutable_memory(1)->mutable_predicted_tiers()->set_nvme_bytes(8000);
  status.mutable_memory(1)->mutable_measured_tiers()->set_host_bytes(5000);
  status.mutable_memory(1)->mutable_measured_tiers()->set_nvme_bytes(7200);
  const std::string text = JobMemoryTable(status, /*wide=*/false);
  EXPECT_NE(text.find("1     host           5 kB (5000)      5 kB (5000)      equal\n"
                      "1     nvme           8 kB (8000)      7.2 kB (7200)    -10%\n"),
            std::string::npos)
      << text;
}

TEST(MemoryReport, StagesShowOtherTiersWhereOneUsesThem) {
  v1::TrainingPlan plan;
  for (int i = 0; i < 2; ++i) plan.add_stages()->set_pp_rank(i);
  plan.mutable_stages(1)->mutable_tiers()->set_nvme_bytes(8000);
  EXPECT_EQ(
      StageMemoryTable(plan, 2),
      "STAGE  PARAMETERS  GRADIENTS  OPTIMIZER  ACTIVATIONS  COMMUNICATION  WORKSPACE  TOTAL  "
      "HOST  NVME\n"
      "0      0 B         0 B        0 B        0 B          0 B            0 B        0 B    "
      "0 B   0 B\n"
      "1      0 B         0 B        0 B        0 B          0 B            0 B        0 B    "
      "0 B   8 kB\n");
}

TEST(MemoryReport, IsEmptyBeforeTheJobHasWorkers) { EXPECT_EQ(JobMemoryTable({}, true), ""); }

TEST(MemoryReport, StagesHaveALineEach) {
  v1::TrainingPlan plan;
  for (int i = 0; i < 3; ++i) {
    plan.add_stages()->set_pp_rank(i);
    *plan.mutable_stages(i)->mutable_memory() = Memory(1000 * (i + 1));
  }
  EXPECT_EQ(
      StageMemoryTable(plan, 2),
      "STAGE  PARAMETERS  GRADIENTS  OPTIMIZER  ACTIVATIONS  COMMUNICATION  WORKSPACE  TOTAL\n"
      "0      1 kB        2 kB       3 kB       4 kB         0 B            100 B      10.1 "
      "kB\n"
      "1      2 kB        3 kB       4 kB       5 kB         0 B            100 B      14.1 "
      "kB\n");
}

}  // namespace
}  // namespace tessera
