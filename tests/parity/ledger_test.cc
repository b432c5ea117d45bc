// What plan/ledger predicts of every rank's memory, against the peaks that its arena has measured:
// equal to the byte, in every category, whatever the mesh and the zero_stage.
#include "plan/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/arena.h"
#include "plan/mesh.h"
#include "tests/parity/mesh_cases.h"
#include "tests/parity/parity_harness.h"
#include "worker/trainer/ledger_request.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

using plan::LedgerCategory;

struct LedgerCase {
  MeshCase mesh;
  int zero_stage = 0;
  bool per_micro_batch = false;
  int prefetch_units = 1;  // of zero_stage 3
  int64_t resident_parameters = 0;
  bool before_reduce = false;  // clipping
  bool samples = false;
  bool traces = false;
  bool low_precision_gradients = false;
  int global_batch = 8;
  int sequence_length = 16;
  int num_threads = 1;
};

constexpr int kSteps = 2;

v1::TrainingJobSpec SpecOf(const LedgerCase& row) {
  v1::TrainingJobSpec spec = MeshSpec(row.mesh);
  spec.mutable_batch()->set_global_batch_size(row.global_batch);
  spec.set_steps(kSteps);
  spec.mutable_evaluation()->set_every_steps(kSteps);
  spec.mutable_data()->set_sequence_length(row.sequence_length);
  spec.mutable_model()->set_context_length(row.sequence_length + 4);
  spec.set_zero_stage(row.zero_stage);
  if (row.per_micro_batch) spec.set_gradient_reduction(v1::GRADIENT_REDUCTION_PER_MICRO_BATCH);
  if (row.zero_stage == 3) {
    spec.mutable_parameter_gather()->set_prefetch_units(row.prefetch_units);
    spec.mutable_parameter_gather()->set_resident_parameters(row.resident_parameters);
  }
  if (row.before_reduce) {
    spec.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
    spec.mutable_optimizer()->set_gradient_clip_norm(1);
  }
  if (row.samples) {
    spec.mutable_sample()->set_prompt(std::string(1, '\3'));
    spec.mutable_sample()->set_max_new_tokens(3);
  }
  if (row.traces) spec.mutable_trace()->set_step(kSteps);
  if (row.low_precision_gradients) spec.set_gradient_precision(row.mesh.precision);
  return spec;
}

plan::RankLedger Predict(const LedgerCase& row, const v1::TrainingJobSpec& spec, int global_rank) {
  const plan::Coordinates at = plan::CoordinatesOf(MeshOf(spec), global_rank);
  v1::MeshCoordinates coordinates;
  coordinates.set_global_rank(global_rank);
  coordinates.set_dp_rank(at.dp_rank);
  coordinates.set_cp_rank(at.cp_rank);
  coordinates.set_pp_rank(at.pp_rank);
  coordinates.set_tp_rank(at.tp_rank);
  const auto config = MakeTrainingConfig(spec, coordinates);
  if (!config.ok()) {
    ADD_FAILURE() << config.status();
    return {};
  }
  return plan::PredictLedger(MakeLedgerRequest(*config, row.num_threads));
}

// Below fp32 the ranks of a pp_rank set weights by pieces of different sizes, and the prediction is
// of the largest.
void ExpectMostOfPpRanks(const plan::MeshSize& mesh, const std::vector<ArenaUsage>& usages,
                         const std::vector<plan::RankLedger>& ledgers) {
  for (int pp_rank = 0; pp_rank < mesh.pp; ++pp_rank) {
    int64_t measured = 0, predicted = 0;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      if (plan::CoordinatesOf(mesh, rank).pp_rank != pp_rank) continue;
      const int64_t own =
          usages[rank].category[static_cast<int>(MemoryCategory::kWorkspace)].peak_bytes;
      EXPECT_LE(own, ledgers[rank].of(LedgerCategory::kWorkspace)) << "rank " << rank;
      measured = std::max(measured, own);
      predicted = std::max(predicted, ledgers[rank].of(LedgerCategory::kWorkspace));
    }
    EXPECT_EQ(predicted, measured) << "workspace of pp_rank " << pp_rank;
  }
}

class Sampling : public TrainingObserver {
 public:
  absl::Status CheckStop() override { return absl::OkStatus(); }
  void OnStepBegin(int64_t) override {}
  void OnStep(const StepResult&) override {}
  absl::Status OnTimeline(const plan::Timeline&) override { return absl::OkStatus(); }
};

class Ledger : public testing::TestWithParam<LedgerCase> {};

TEST_P(Ledger, IsWhatTheArenaMeasures) {
  const LedgerCase& row = GetParam();
  const v1::TrainingJobSpec spec = SpecOf(row);
  ParityOptions options;
  options.collect_parameters = false;
  options.num_threads = row.num_threads;
  // Before the peaks are read.
  options.prepare = [](Trainer& trainer) {
    Sampling observer;
    return trainer.Sample(observer).status();
  };
  const auto run = TrainInProcess(spec, MeshData(row.mesh), options);
  ASSERT_TRUE(run.ok()) << run.status();
  std::vector<plan::RankLedger> ledgers;
  for (int rank = 0; rank < static_cast<int>(run->usages.size()); ++rank) {
    const ArenaUsage& usage = run->usages[rank];
    const plan::RankLedger& ledger = ledgers.emplace_back(Predict(row, spec, rank));
    for (const LedgerCategory category : plan::kLedgerCategories) {
      if (category == LedgerCategory::kWorkspace && row.mesh.precision != v1::PRECISION_FP32) {
        continue;
      }
      EXPECT_EQ(ledger.of(category), usage.category[static_cast<int>(category)].peak_bytes)
          << plan::LedgerCategoryName(category) << " of rank " << rank;
    }
    EXPECT_GE(ledger.total_bytes(), usage.peak_bytes) << "rank " << rank;
  }
  ExpectMostOfPpRanks(MeshOf(spec), run->usages, ledgers);
}

std::string NameOf(const testing::TestParamInfo<LedgerCase>& info) {
  const LedgerCase& row = info.param;
  return absl::StrCat(row.mesh.name, "Zero", row.zero_stage, row.per_micro_batch ? "Each" : "",
                      "Prefetch", row.prefetch_units, row.resident_parameters > 0 ? "Resident" : "",
                      row.before_reduce ? "BeforeReduce" : "", row.samples ? "Sample" : "",
                      row.traces ? "Trace" : "", row.low_precision_gradients ? "LowGradients" : "",
                      "T", row.sequence_length, "Threads", row.num_threads);
}

std::vector<LedgerCase> ParityTable() {
  std::vector<LedgerCase> cases;
  for (const MeshCase& mesh : MeshCases()) {
    if (mesh.masked == 0) cases.push_back({.mesh = mesh});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Meshes, Ledger, testing::ValuesIn(ParityTable()), NameOf);

// What a job has besides its mesh.
std::vector<LedgerCase> Extras() {
  using enum v1::Precision;
  const MeshCase one{.name = "One"};
  const MeshCase llama{.name = "Llama", .llama = true, .precision = PRECISION_BF16};
  const MeshCase pp{.name = "Pp2Tp2Bf16", .pp = 2, .tp = 2, .precision = PRECISION_BF16};
  const MeshCase cp{.name = "Dp2Cp2Llama", .dp = 2, .cp = 2, .llama = true};
  const MeshCase cp_bf16{.name = "Cp2Tp2Bf16", .cp = 2, .tp = 2, .precision = PRECISION_BF16};
  // More micro-batches than are replayed, of which interleaved_1f1b's last round has one.
  const MeshCase interleaved{.name = "Dp2Pp2Interleaved",
                             .dp = 2,
                             .pp = 2,
                             .schedule = v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
                             .micro_batches = 11};
  const MeshCase zero_bubble{.name = "Dp2Pp2ZeroBubble",
                             .dp = 2,
                             .pp = 2,
                             .schedule = v1::PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
                             .micro_batches = 11};
  // An embedding of 1 MiB, whose optimizer state is padded.
  const MeshCase mebibyte{.name = "LlamaMebibyte", .dp = 2, .llama = true, .vocab = 8192};
  // The head's matrix lies across the only border of two shards.
  const MeshCase head{.name = "Dp2Pp2UntiedBf16",
                      .dp = 2,
                      .pp = 2,
                      .llama = true,
                      .precision = PRECISION_BF16,
                      .vocab = 1001,
                      .tied = false};
  const MeshCase five{.name = "Pp5", .pp = 5, .micro_batches = 4};
  return {
      {.mesh = one},
      {.mesh = one, .num_threads = 2},
      {.mesh = one, .per_micro_batch = true, .samples = true},
      {.mesh = one, .traces = true},
      {.mesh = llama, .samples = true, .low_precision_gradients = true},
      {.mesh = llama, .samples = true, .sequence_length = 80},
      {.mesh = pp, .samples = true, .traces = true, .low_precision_gradients = true},
      {.mesh = pp, .samples = true, .sequence_length = 112},
      {.mesh = cp, .samples = true},
      {.mesh = cp, .samples = true, .sequence_length = 112},
      {.mesh = cp_bf16, .samples = true, .sequence_length = 112, .num_threads = 2},
      {.mesh = mebibyte},
      {.mesh = head, .zero_stage = 3},
      {.mesh = five, .traces = true},
      {.mesh = interleaved, .zero_stage = 3, .global_batch = 22},
      {.mesh = interleaved, .zero_stage = 2, .per_micro_batch = true, .global_batch = 22},
      {.mesh = zero_bubble, .zero_stage = 3, .global_batch = 22},
      {.mesh = zero_bubble, .zero_stage = 3, .per_micro_batch = true, .global_batch = 22},
  };
}

// Each mesh with every zero_stage, both reductions, and of stage 3 several ways to gather.
std::vector<LedgerCase> ZeroTable() {
  using enum v1::PipelineSchedule;
  using enum v1::ContextParallelKind;
  using enum v1::Recompute;
  using enum v1::Precision;
  const std::vector<MeshCase> meshes = {
      {.name = "Dp2", .dp = 2},
      {.name = "Dp4Bf16Untied", .dp = 4, .llama = true, .precision = PRECISION_BF16, .tied = false},
      {.name = "Dp2OneMicroBatch", .dp = 2, .micro_batches = 1},
      {.name = "Cp2", .cp = 2},
      {.name = "Dp2Cp2Ulysses",
       .dp = 2,
       .cp = 2,
       .cp_kind = CONTEXT_PARALLEL_KIND_ULYSSES,
       .precision = PRECISION_BF16},
      {.name = "Dp2Tp2SpReplicatedKv",
       .dp = 2,
       .tp = 2,
       .llama = true,
       .sequence_parallel = true,
       .kv_heads = 1,
       .attention_bias = true},
      {.name = "Dp2Pp2Tied", .dp = 2, .pp = 2, .micro_batches = 4},
      {.name = "Dp2Pp4", .dp = 2, .pp = 4, .micro_batches = 4},
      {.name = "Dp2ZeroBubble",
       .dp = 2,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .micro_batches = 4},
      {.name = "Dp2Pp2ZeroBubbleRecompute",
       .dp = 2,
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .recompute = RECOMPUTE_FULL,
       .micro_batches = 4},
      {.name = "Dp2Pp2InterleavedUntied",
       .dp = 2,
       .pp = 2,
       .llama = true,
       .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
       .recompute = RECOMPUTE_ATTENTION,
       .micro_batches = 4,
       .tied = false},
      {.name = "Dp2Pp2Gpipe",
       .dp = 2,
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_GPIPE,
       .micro_batches = 4},
      {.name = "Mesh4dSpFp16",
       .dp = 2,
       .cp = 2,
       .pp = 2,
       .tp = 2,
       .sequence_parallel = true,
       .precision = PRECISION_FP16},
  };
  std::vector<LedgerCase> cases;
  for (const MeshCase& mesh : meshes) {
    for (const bool per_micro_batch : {false, true}) {
      for (const int zero_stage : {1, 2, 3}) {
        LedgerCase row{.mesh = mesh, .zero_stage = zero_stage, .per_micro_batch = per_micro_batch};
        cases.push_back(row);
        if (zero_stage < 3) continue;
        for (const int prefetch_units : {0, 3}) {
          row.prefetch_units = prefetch_units;
          cases.push_back(row);
        }
        row.resident_parameters = 100;  // the head's norm, where it has no matrix
        row.samples = true;
        cases.push_back(row);
      }
    }
    if (mesh.cp > 1) continue;  // not supported
    for (const int zero_stage : {0, 1, 2, 3}) {
      cases.push_back({.mesh = mesh, .zero_stage = zero_stage, .before_reduce = true});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(ZeroStages, Ledger, testing::ValuesIn(ZeroTable()), NameOf);

INSTANTIATE_TEST_SUITE_P(Extras, Ledger, testing::ValuesIn(Extras()), NameOf);

}  // namespace
}  // namespace tessera
