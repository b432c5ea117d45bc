#include "coordinator/job_plan.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

// dp=2 cp=2 pp=2 tp=2: 16 ranks; 5 layers.
v1::PlanTrainingJobRequest Request() {
  v1::PlanTrainingJobRequest request;
  const auto status = google::protobuf::util::JsonStringToMessage(
      R"({"model": {"family": "MODEL_FAMILY_GPT2", "vocabSize": 101, "contextLength": 16,
                    "layers": 5, "heads": 4, "hiddenSize": 8},
          "data": {"path": "a", "format": "DATA_FORMAT_TEXT", "sequenceLength": 8},
          "learningRate": {"peak": 0.1}, "steps": 1,
          "batch": {"globalBatchSize": 24, "microBatches": 4},
          "mesh": {"dp": 2, "cp": 2, "pp": 2, "tp": 2}})",
      request.mutable_spec());
  EXPECT_TRUE(status.ok()) << status.ToString();
  return request;
}

v1::TrainingPlan Plan(const v1::PlanTrainingJobRequest& request) {
  auto response = PlanJob(request);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? response->plan() : v1::TrainingPlan();
}

TEST(JobPlan, NumbersRanksAndListsEachGroupOnce) {
  const v1::TrainingPlan plan = Plan(Request());
  EXPECT_EQ(plan.axis_order(), "dp, cp, pp, tp");
  EXPECT_EQ(plan.world_size(), 16);
  ASSERT_EQ(plan.ranks_size(), 16);
  // ((1 * 2 + 0) * 2 + 1) * 2 + 1
  const v1::MeshCoordinates& at = plan.ranks(11).coordinates();
  EXPECT_EQ(at.global_rank(), 11);
  EXPECT_EQ(absl::StrCat(at.dp_rank(), at.cp_rank(), at.pp_rank(), at.tp_rank()), "1011");
  std::vector<std::string> groups;
  for (const int index : plan.ranks(11).groups()) {
    const v1::PlannedGroup& group = plan.groups(index);
    groups.push_back(absl::StrCat(group.name(), " ", absl::StrJoin(group.members(), ",")));
  }
  EXPECT_EQ(groups, (std::vector<std::string>{"dp[cp=0,pp=1,tp=1] 3,11", "cp[dp=1,pp=1,tp=1] 11,15",
                                              "pp[dp=1,cp=0,tp=1] 9,11", "tp[dp=1,cp=0,pp=1] 10,11",
                                              "zero[pp=1,tp=1] 3,7,11,15"}));
  EXPECT_EQ(plan.groups_size(), 4 * 8 + 4);
}

TEST(JobPlan, OneRankIsInNoGroup) {
  v1::PlanTrainingJobRequest request = Request();
  request.mutable_spec()->clear_mesh();
  const v1::TrainingPlan plan = Plan(request);
  EXPECT_EQ(plan.world_size(), 1);
  EXPECT_EQ(plan.mesh().tp(), 1);
  EXPECT_EQ(plan.groups_size(), 0);
  EXPECT_EQ(plan.schedule().formula_idle_share(), 0);
  EXPECT_EQ(plan.schedule().simulated_idle_share(), 0);
  ASSERT_EQ(plan.sequence_parts_size(), 1);
  ASSERT_EQ(plan.sequence_parts(0).pieces_size(), 1);
  EXPECT_EQ(plan.sequence_parts(0).pieces(0).count(), 8);
}

TEST(JobPlan, SplitsLayersAndSequences) {
  v1::PlanTrainingJobRequest request = Request();
  request.mutable_spec()->set_pipeline_schedule(v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B);
  for (const int layers : {1, 1, 2, 1}) request.mutable_spec()->add_chunk_layers(layers);
  const v1::TrainingPlan plan = Plan(request);
  std::string text;
  for (const v1::PlannedStage& stage : plan.stages()) {
    for (const v1::PlannedChunk& chunk : stage.chunks()) {
      absl::StrAppend(&text, stage.pp_rank(), ".", chunk.chunk(), ":", chunk.layers().first(), "+",
                      chunk.layers().count(), chunk.has_embedding() ? " embedding" : "",
                      chunk.has_head() ? " head" : "", "; ");
    }
  }
  EXPECT_EQ(text, "0.0:0+1 embedding; 0.1:2+2; 1.0:1+1; 1.1:4+1 head; ");
  text.clear();
  for (const v1::PlannedSequencePart& part : plan.sequence_parts()) {
    for (const v1::PositionRange& piece : part.pieces()) {
      absl::StrAppend(&text, part.cp_rank(), ":", piece.first(), "+", piece.count(), " ");
    }
  }
  EXPECT_EQ(text, "0:0+2 0:6+2 1:2+2 1:4+2 ");
}

TEST(JobPlan, SimulationAgreesWithTheFormula) {
  struct Case {
    const char* name;
    v1::PipelineSchedule schedule;
    double idle_share;           // with p = 2, m = 4
    std::vector<int> in_flight;  // by stage
    int64_t computations;
    int64_t sends;
  };
  const Case cases[] = {
      {"naive", v1::PIPELINE_SCHEDULE_NAIVE, 1. / 2, {4, 4}, 8, 4},
      {"gpipe", v1::PIPELINE_SCHEDULE_GPIPE, 1. / 5, {4, 4}, 8, 4},
      {"default", v1::PIPELINE_SCHEDULE_UNSPECIFIED, 1. / 5, {2, 1}, 8, 4},
      {"interleaved", v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B, 1. / 9, {5, 3}, 16, 12},
      {"zero_bubble", v1::PIPELINE_SCHEDULE_ZERO_BUBBLE_H1, 1. / 13, {2, 1}, 12, 4},
  };
  for (const Case& c : cases) {
    v1::PlanTrainingJobRequest request = Request();
    request.mutable_spec()->set_pipeline_schedule(c.schedule);
    const v1::TrainingPlan plan = Plan(request);
    EXPECT_NEAR(plan.schedule().simulated_idle_share(), c.idle_share, 1e-9) << c.name;
    EXPECT_NEAR(plan.schedule().formula_idle_share(), c.idle_share, 1e-9) << c.name;
    EXPECT_EQ(plan.schedule().micro_batches(), 4) << c.name;
    EXPECT_EQ(plan.schedule().micro_batch_size(), 3) << c.name;
    std::vector<int> in_flight;
    for (const v1::PlannedStage& stage : plan.stages()) {
      in_flight.push_back(stage.peak_in_flight());
      EXPECT_EQ(stage.computations(), c.computations) << c.name;
    }
    EXPECT_EQ(in_flight, c.in_flight) << c.name;
    EXPECT_EQ(plan.stages(0).sends(), c.sends) << c.name;
  }
}

TEST(JobPlan, TrafficIsThatOfEachStage) {
  const v1::TrainingPlan plan = Plan(Request());
  std::string text;
  for (const v1::PredictedTraffic& traffic : plan.stages(0).traffic()) {
    absl::StrAppend(&text, traffic.axis(), " ", traffic.kind(), " ", traffic.calls(), "; ");
  }
  // Three layers and the embedding, four micro-batches.
  EXPECT_EQ(text,
            "dp all_reduce 1; cp send 36; cp recv 36; pp all_reduce 3; pp send 5; pp recv 5; "
            "tp all_reduce 54; zero all_reduce 3; zero reduce_scatter 4; zero all_gather 4; ");
  EXPECT_NE(plan.stages(1).traffic_size(), plan.stages(0).traffic_size());
}

TEST(JobPlan, MemoryIsThatOfTheRankOfEachStageThatNeedsMost) {
  v1::PlanTrainingJobRequest request = Request();
  const v1::TrainingPlan plan = Plan(request);
  ASSERT_EQ(plan.stages_size(), 2);
  for (const v1::PlannedStage& stage : plan.stages()) {
    const v1::DeviceMemory& memory = stage.memory();
    EXPECT_EQ(memory.gradients_bytes(), memory.parameters_bytes());
    EXPECT_EQ(memory.optimizer_bytes(), 2 * memory.parameters_bytes());
    EXPECT_EQ(memory.total_bytes(), memory.parameters_bytes() + memory.gradients_bytes() +
                                        memory.optimizer_bytes() + memory.activations_bytes() +
                                        memory.communication_bytes() + memory.workspace_bytes());
  }
  request.mutable_spec()->set_zero_stage(1);  // over dp * cp = 4
  EXPECT_EQ(Plan(request).stages(0).memory().optimizer_bytes(),
            plan.stages(0).memory().optimizer_bytes() / 4);
}

TEST(JobPlan, LongSchedulesAreNotSimulated) {
  v1::PlanTrainingJobRequest request = Request();
  request.mutable_spec()->mutable_batch()->set_global_batch_size(65536 * 2);
  request.mutable_spec()->mutable_batch()->set_micro_batches(65536);
  const v1::TrainingPlan plan = Plan(request);
  EXPECT_FALSE(plan.schedule().has_simulated_idle_share());
  EXPECT_NEAR(plan.schedule().formula_idle_share(), 1. / 65537, 1e-9);
  EXPECT_FALSE(plan.stages(0).has_simulated_idle_share());
  EXPECT_EQ(plan.stages(0).peak_in_flight(), 2);
}

TEST(JobPlan, TheLargestMeshIsPlanned) {
  v1::PlanTrainingJobRequest request = Request();
  request.mutable_spec()->clear_mesh();
  request.mutable_spec()->mutable_mesh()->set_dp(65536);
  request.mutable_spec()->mutable_batch()->set_global_batch_size(4 * 65536);
  const v1::TrainingPlan plan = Plan(request);
  EXPECT_EQ(plan.ranks_size(), 65536);
  EXPECT_EQ(plan.groups_size(), 2);
  EXPECT_LT(plan.ByteSizeLong(), size_t{16} << 20);
}

TEST(JobPlan, ALongPipelineIsPlanned) {
  v1::PlanTrainingJobRequest request = Request();
  v1::TrainingJobSpec& spec = *request.mutable_spec();
  spec.clear_mesh();
  spec.mutable_mesh()->set_pp(256);
  spec.mutable_model()->set_layers(256);
  spec.mutable_batch()->set_global_batch_size(65536);
  spec.mutable_batch()->set_micro_batches(65536);
  const v1::TrainingPlan plan = Plan(request);
  EXPECT_EQ(plan.stages_size(), 256);
  // 1f1b: the first holds most micro-batches.
  EXPECT_GT(plan.stages(1).memory().activations_bytes(),
            plan.stages(254).memory().activations_bytes());
}

TEST(JobPlan, DrawsTheScheduleWhenAsked) {
  v1::PlanTrainingJobRequest request = Request();
  EXPECT_EQ(PlanJob(request)->timeline(), "");
  request.set_timeline(v1::TIMELINE_FORMAT_SVG);
  const std::string svg = PlanJob(request)->timeline();
  EXPECT_NE(svg.find("<svg"), std::string::npos) << svg.substr(0, 200);
  EXPECT_NE(svg.find("1f1b, 2 stages, 4 micro-batches"), std::string::npos);
  request.set_timeline(v1::TIMELINE_FORMAT_TRACE_EVENTS);
  EXPECT_EQ(PlanJob(request)->timeline().front(), '{');
}

TEST(JobPlan, RefusesWhatCreateWouldRefuseAndDrawingsWithoutEnd) {
  struct Case {
    const char* field;
    std::function<void(v1::PlanTrainingJobRequest&)> change;
    absl::StatusCode code;
  };
  const Case cases[] = {
      {"spec", [](auto& r) { r.clear_spec(); }, absl::StatusCode::kInvalidArgument},
      {"spec.model.heads", [](auto& r) { r.mutable_spec()->mutable_mesh()->set_tp(3); },
       absl::StatusCode::kInvalidArgument},
      {"spec.zero_stage", [](auto& r) { r.mutable_spec()->set_zero_stage(4); },
       absl::StatusCode::kInvalidArgument},
      {"timeline", [](auto& r) { r.set_timeline(static_cast<v1::TimelineFormat>(9)); },
       absl::StatusCode::kInvalidArgument},
      {"timeline",
       [](auto& r) {  // simulated, but too long to draw
         r.set_timeline(v1::TIMELINE_FORMAT_SVG);
         r.mutable_spec()->mutable_batch()->set_global_batch_size(2 * 32768);
         r.mutable_spec()->mutable_batch()->set_micro_batches(32768);
       },
       absl::StatusCode::kInvalidArgument},
      {"timeline",
       [](auto& r) {
         r.set_timeline(v1::TIMELINE_FORMAT_TRACE_EVENTS);
         r.mutable_spec()->mutable_batch()->set_global_batch_size(2 * 65536);
         r.mutable_spec()->mutable_batch()->set_micro_batches(65536);
       },
       absl::StatusCode::kInvalidArgument},
  };
  for (const Case& c : cases) {
    v1::PlanTrainingJobRequest request = Request();
    c.change(request);
    const absl::Status status = PlanJob(request).status();
    EXPECT_EQ(status.code(), c.code) << c.field << status;
    EXPECT_EQ(FieldOf(status).value_or(""), c.field) << status;
  }
}

}  // namespace
}  // namespace tessera
