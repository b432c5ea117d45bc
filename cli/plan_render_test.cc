#include "cli/plan_render.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

// pp=2: two ranks.
v1::TrainingPlan TwoStages() {
  v1::TrainingPlan plan;
  plan.set_axis_order("dp, cp, pp, tp");
  plan.mutable_mesh()->set_dp(1);
  plan.mutable_mesh()->set_cp(1);
  plan.mutable_mesh()->set_pp(2);
  plan.mutable_mesh()->set_tp(1);
  plan.set_world_size(2);
  v1::PlannedGroup& group = *plan.add_groups();
  group.set_name("pp[dp=0,cp=0,tp=0]");
  group.set_axis("pp");
  for (int i = 0; i < 2; ++i) {
    v1::PlannedRank& rank = *plan.add_ranks();
    rank.mutable_coordinates()->set_global_rank(i);
    rank.mutable_coordinates()->set_pp_rank(i);
    rank.add_groups(0);
    group.add_members(i);
    v1::PlannedStage& stage = *plan.add_stages();
    stage.set_pp_rank(i);
    stage.set_computations(16);
    stage.set_sends(12);
    stage.set_peak_in_flight(5 - 2 * i);
    stage.set_peak_in_flight_for_weights(5 - 2 * i);
    stage.set_simulated_idle_share(1. / 9);
    for (int chunk = 0; chunk < 2; ++chunk) {
      v1::PlannedChunk& planned = *stage.add_chunks();
      planned.set_chunk(chunk);
      planned.mutable_layers()->set_first(chunk == 0 ? 2 * i : 4 + i);
      planned.mutable_layers()->set_count(chunk == 0 ? 2 : 1);
      planned.set_has_embedding(i == 0 && chunk == 0);
      planned.set_has_head(i == 1 && chunk == 1);
    }
    v1::PredictedTraffic& traffic = *stage.add_traffic();
    traffic.set_axis("pp");
    traffic.set_kind("send");
    traffic.set_calls(12);
    traffic.set_bytes(1234567);
    stage.mutable_memory()->set_parameters_bytes(1000 * (i + 1));
    stage.mutable_memory()->set_total_bytes(1000 * (i + 1));
  }
  v1::PlannedSchedule& schedule = *plan.mutable_schedule();
  schedule.set_schedule(v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B);
  schedule.set_chunks(2);
  schedule.set_micro_batches(4);
  schedule.set_micro_batch_size(3);
  schedule.set_simulated_idle_share(1. / 9);
  schedule.set_formula_idle_share(1. / 9);
  schedule.set_assumption("all take one unit");
  return plan;
}

TEST(PlanRender, ShowsEverythingOfASmallMesh) {
  EXPECT_EQ(PlanTable(TwoStages(), false),
            "Axes       dp, cp, pp, tp (outermost first)\n"
            "Mesh       dp=1 cp=1 pp=2 tp=1, 2 ranks\n"
            "Schedule   interleaved_1f1b, 2 chunks a stage, 4 micro-batches of 3 sequences\n"
            "Bubble     11.1% simulated, 11.1% by the formula\n"
            "           (all take one unit)\n"
            "\n"
            "RANK  DP  CP  PP  TP  PP GROUP\n"
            "0     0   0   0   0   0 1\n"
            "1     0   0   1   0   0 1\n"
            "\n"
            "Stages; in flight: micro-batches held at once, until backward and until the weight "
            "gradient\n"
            "STAGE  LAYERS             COMPUTATIONS  SENDS  IN FLIGHT  FOR WEIGHTS  IDLE\n"
            "0      embedding, 0-1; 4  16            12     2.5        2.5          11.1%\n"
            "1      2-3; 5, head       16            12     1.5        1.5          11.1%\n"
            "\n"
            "Device memory of the rank of each stage that needs most\n"
            "STAGE  PARAMETERS  GRADIENTS  OPTIMIZER  ACTIVATIONS  COMMUNICATION  WORKSPACE  "
            "TOTAL\n"
            "0      1 kB        0 B        0 B        0 B          0 B            0 B        "
            "1 kB\n"
            "1      2 kB        0 B        0 B        0 B          0 B            0 B        "
            "2 kB\n"
            "\n"
            "Traffic of each rank in one step\n"
            "STAGE  AXIS  KIND  CALLS  BYTES\n"
            "0-1    pp    send  12     1.23 MB\n");
}

TEST(PlanRender, StagesOfOtherTrafficHaveLinesOfTheirOwn) {
  v1::TrainingPlan plan = TwoStages();
  plan.mutable_stages(1)->mutable_traffic(0)->set_bytes(1);
  const std::string text = PlanTable(plan, false);
  EXPECT_NE(text.find("\n0      pp    send  12     1.23 MB\n1      pp    send  12     1 B\n"),
            std::string::npos)
      << text;
}

TEST(PlanRender, LargeMeshesAreCutUnlessWide) {
  v1::TrainingPlan plan = TwoStages();
  plan.clear_ranks();
  for (int i = 0; i < 100; ++i) {
    v1::PlannedRank& rank = *plan.add_ranks();
    rank.mutable_coordinates()->set_global_rank(i);
    rank.add_groups(0);
    if (i >= 2) plan.mutable_groups(0)->add_members(i);
  }
  const std::string text = PlanTable(plan, false);
  EXPECT_NE(text.find("\n31    "), std::string::npos) << text;
  EXPECT_EQ(text.find("\n32    "), std::string::npos) << text;
  EXPECT_NE(text.find("0 1 2 3 ... 99 (100)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("... and 68 more ranks: -o wide, json or yaml\n"), std::string::npos) << text;
  const std::string wide = PlanTable(plan, true);
  EXPECT_NE(wide.find("\n99    "), std::string::npos);
  EXPECT_EQ(wide.find("more ranks"), std::string::npos);
  EXPECT_NE(wide.find("0 1 2 3 ... 99 (100)\n"), std::string::npos) << wide;
}

TEST(PlanRender, PositionsAndLongSchedules) {
  v1::TrainingPlan plan = TwoStages();
  plan.mutable_schedule()->clear_simulated_idle_share();
  for (int cp_rank = 0; cp_rank < 2; ++cp_rank) {
    v1::PlannedSequencePart& part = *plan.add_sequence_parts();
    part.set_cp_rank(cp_rank);
    for (const int first : {2 * cp_rank, 6 - 2 * cp_rank}) {
      v1::PositionRange& piece = *part.add_pieces();
      piece.set_first(first);
      piece.set_count(2);
    }
  }
  const std::string text = PlanTable(plan, false);
  EXPECT_NE(text.find("too long to simulate, 11.1% by the formula\n"), std::string::npos) << text;
  EXPECT_NE(text.find("CP RANK  POSITIONS\n0        0-1, 6-7\n1        2-3, 4-5\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tessera
