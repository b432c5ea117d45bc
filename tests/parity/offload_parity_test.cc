// Offloading changes no bit: losses, gradient norms, final weights and AdamW's means with state in
// host memory or on disk are those of the same job without, also when the job is suspended, or
// lost, and resumed in between.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/parity/mesh_cases.h"
#include "tests/parity/parity_harness.h"
#include "worker/trainer/ledger_request.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

struct Kind {
  v1::Tier tier = v1::TIER_UNSPECIFIED;
  double fraction = 1;
};

struct OffloadCase {
  MeshCase mesh;
  Kind optimizer, gradients = {}, parameters = {};
  bool per_micro_batch = false;
  bool fp32_gradients = false;
  bool activations = false;
  int64_t buffer_bytes = 65536;  // several pieces a unit
  int buffers = 3;
  int first_loss_scale = 0;  // fp16; 0: the default
};

void PrintTo(const OffloadCase& row, std::ostream* out) { *out << row.mesh.name; }

constexpr v1::Tier kHost = v1::TIER_HOST, kNvme = v1::TIER_NVME;

std::vector<OffloadCase> Cases() {
  using enum v1::Precision;
  using enum v1::Recompute;
  using enum v1::PipelineSchedule;
  return {
      {.mesh = {.name = "OneRankHost"}, .optimizer = {kHost}},
      {.mesh = {.name = "OneRankNvme"}, .optimizer = {kNvme}},
      {.mesh = {.name = "OneRankNvmeBf16Half", .precision = PRECISION_BF16},
       .optimizer = {kNvme, 0.5},
       .fp32_gradients = true},
      {.mesh = {.name = "OneRankAllHostBf16", .precision = PRECISION_BF16},
       .optimizer = {kHost},
       .gradients = {kHost},
       .parameters = {kHost}},
      {.mesh = {.name = "OneRankAllNvmeFp16", .precision = PRECISION_FP16},
       .optimizer = {kNvme},
       .gradients = {kNvme},
       .parameters = {kNvme}},
      {.mesh = {.name = "OneRankLlamaNvmeOverflow",
                .llama = true,
                .precision = PRECISION_FP16,
                .tied = false},
       .optimizer = {kNvme},
       .gradients = {kHost, 0.5},
       .parameters = {kNvme, 0.6},
       .buffers = 7,
       .first_loss_scale = 1 << 22},
      {.mesh = {.name = "OneRankParametersNvmeActivations", .recompute = RECOMPUTE_FULL},
       .optimizer = {kNvme},
       .parameters = {kNvme},
       .activations = true},
      {.mesh = {.name = "Dp2Stage0Host", .dp = 2}, .optimizer = {kHost, 0.3}},
      {.mesh = {.name = "Dp2Stage0AllNvme", .dp = 2, .precision = PRECISION_BF16},
       .optimizer = {kNvme},
       .gradients = {kNvme},
       .parameters = {kNvme}},
      {.mesh = {.name = "Dp2Stage0GradientsPerMicroBatch", .dp = 2, .micro_batches = 4},
       .optimizer = {kHost},
       .gradients = {kHost},
       .per_micro_batch = true},
      {.mesh = {.name = "Dp2Stage1Nvme", .dp = 2, .zero_stage = 1},
       .optimizer = {kNvme},
       .parameters = {kHost}},
      {.mesh =
           {.name = "Dp2Stage1AllHostFp16", .dp = 2, .precision = PRECISION_FP16, .zero_stage = 1},
       .optimizer = {kHost},
       .gradients = {kHost},
       .parameters = {kHost, 0.5}},
      {.mesh = {.name = "Dp3Stage2NvmeBf16",
                .dp = 3,
                .precision = PRECISION_BF16,
                .masked = 1,
                .zero_stage = 2},
       .optimizer = {kNvme},
       .gradients = {kHost}},
      {.mesh = {.name = "Dp2Stage2GradientsNvme", .dp = 2, .zero_stage = 2},
       .optimizer = {kNvme, 0.7},
       .gradients = {kNvme, 0.4},
       .parameters = {kNvme, 0.2}},
      {.mesh = {.name = "Dp2Stage2PerMicroBatch", .dp = 2, .micro_batches = 4, .zero_stage = 2},
       .optimizer = {kNvme},
       .gradients = {kNvme},
       .per_micro_batch = true},
      {.mesh = {.name = "Dp2Stage3Host", .dp = 2, .zero_stage = 3},
       .optimizer = {kHost},
       .parameters = {kHost}},
      {.mesh = {.name = "Dp2Stage3AllNvme",
                .dp = 2,
                .recompute = RECOMPUTE_FULL,
                .precision = PRECISION_BF16,
                .zero_stage = 3},
       .optimizer = {kNvme},
       .gradients = {kNvme},
       .parameters = {kNvme},
       .activations = true},
      {.mesh = {.name = "Cp2Stage3Nvme", .cp = 2, .zero_stage = 3},
       .optimizer = {kNvme},
       .parameters = {kNvme, 0.5}},
      {.mesh = {.name = "Tp2Nvme", .tp = 2, .sequence_parallel = true},
       .optimizer = {kNvme},
       .gradients = {kHost}},
      {.mesh = {.name = "Pp2Host", .pp = 2, .micro_batches = 4},
       .optimizer = {kHost},
       .gradients = {kHost},
       .parameters = {kHost}},
      {.mesh = {.name = "Dp3Pp2TiedStage2Nvme", .dp = 3, .pp = 2, .zero_stage = 2},
       .optimizer = {kNvme},
       .gradients = {kNvme},
       .parameters = {kHost}},
      {.mesh = {.name = "Pp2ZeroBubbleActivations",
                .pp = 2,
                .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
                .recompute = RECOMPUTE_FULL,
                .micro_batches = 4},
       .optimizer = {kNvme},
       .parameters = {kNvme},
       .activations = true},
      {.mesh = {.name = "Dp2Pp2InterleavedStage3",
                .dp = 2,
                .pp = 2,
                .llama = true,
                .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
                .micro_batches = 4,
                .tied = false,
                .zero_stage = 3},
       .optimizer = {kNvme},
       .gradients = {kHost},
       .parameters = {kNvme}},
      {.mesh = {.name = "Mesh4dStage3Bf16",
                .dp = 2,
                .cp = 2,
                .pp = 2,
                .tp = 2,
                .sequence_parallel = true,
                .precision = PRECISION_BF16,
                .zero_stage = 3},
       .optimizer = {kNvme},
       .gradients = {kNvme, 0.5},
       .parameters = {kNvme}},
  };
}

void SetKind(const Kind& kind, v1::StateOffload* (v1::OffloadSpec::*mutable_kind)(),
             v1::OffloadSpec& offload) {
  if (kind.tier == v1::TIER_UNSPECIFIED) return;
  v1::StateOffload& state = *(offload.*mutable_kind)();
  state.set_tier(kind.tier);
  state.set_fraction(kind.fraction);
}

v1::TrainingJobSpec PlainSpecOf(const OffloadCase& row) {
  v1::TrainingJobSpec spec = MeshSpec(row.mesh);
  if (row.mesh.dp == 3) spec.mutable_batch()->set_global_batch_size(12);
  spec.clear_gradient_precision();
  if (row.fp32_gradients) spec.set_gradient_precision(v1::PRECISION_FP32);
  if (row.per_micro_batch) {
    spec.set_gradient_reduction(v1::GRADIENT_REDUCTION_PER_MICRO_BATCH);
  }
  if (row.first_loss_scale > 0) {
    spec.mutable_loss_scale()->set_initial(row.first_loss_scale);
    spec.mutable_loss_scale()->set_hysteresis(1);
    spec.set_steps(12);
  }
  return spec;
}

v1::TrainingJobSpec OffloadedSpecOf(const OffloadCase& row) {
  v1::TrainingJobSpec spec = PlainSpecOf(row);
  v1::OffloadSpec& offload = *spec.mutable_offload();
  SetKind(row.optimizer, &v1::OffloadSpec::mutable_optimizer, offload);
  SetKind(row.gradients, &v1::OffloadSpec::mutable_gradients, offload);
  SetKind(row.parameters, &v1::OffloadSpec::mutable_parameters, offload);
  offload.set_activations(row.activations);
  offload.set_buffers(row.buffers);
  offload.set_buffer_bytes(row.buffer_bytes);
  return spec;
}

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/tiersXXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  return folder;
}

// The steps of a run that was suspended, and of the one that went on: a step that was computed
// twice counts once.
ParityRun Joined(const ParityRun& before, ParityRun after) {
  std::vector<StepResult> steps;
  for (const StepResult& step : before.steps) {
    if (step.step < after.steps.front().step) steps.push_back(step);
  }
  steps.insert(steps.end(), after.steps.begin(), after.steps.end());
  after.steps = std::move(steps);
  return after;
}

// What the ledger predicts of every rank, on the device and outside of it, is what was measured;
// but for workspace, of which it is a bound below fp32.
void ExpectLedger(const v1::TrainingJobSpec& spec, const ParityRun& run) {
  for (int rank = 0; rank < static_cast<int>(run.usages.size()); ++rank) {
    SCOPED_TRACE(absl::StrCat("global_rank ", rank));
    const plan::Coordinates at = plan::CoordinatesOf(MeshOf(spec), rank);
    v1::MeshCoordinates coordinates;
    coordinates.set_global_rank(rank);
    coordinates.set_dp_rank(at.dp_rank);
    coordinates.set_cp_rank(at.cp_rank);
    coordinates.set_pp_rank(at.pp_rank);
    coordinates.set_tp_rank(at.tp_rank);
    const auto config = MakeTrainingConfig(spec, coordinates);
    ASSERT_TRUE(config.ok()) << config.status();
    const plan::RankLedger ledger = plan::PredictLedger(MakeLedgerRequest(*config, 1));
    for (const plan::LedgerCategory category : plan::kLedgerCategories) {
      const int64_t measured = run.usages[rank].category[static_cast<size_t>(category)].peak_bytes;
      if (category == plan::LedgerCategory::kWorkspace) {
        EXPECT_GE(ledger.of(category), measured) << plan::LedgerCategoryName(category);
      } else {
        EXPECT_EQ(ledger.of(category), measured) << plan::LedgerCategoryName(category);
      }
    }
    EXPECT_EQ(ledger.host_bytes, run.host_usages[rank].peak_bytes);
    EXPECT_EQ(ledger.nvme_bytes, run.peaks_nvme_bytes[rank]);
  }
}

class OffloadParity : public testing::TestWithParam<OffloadCase> {
 protected:
  const OffloadCase& row() const { return GetParam(); }
  const JobData data_ = MeshData(GetParam().mesh);
  ParityOptions options_;

  void SetUp() override {
    options_.tiers.emplace();
    options_.tiers->nvme_root = NewFolder();
  }
};

TEST_P(OffloadParity, ChangesNoBit) {
  const auto plain = TrainInProcess(PlainSpecOf(row()), data_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto offloaded = TrainInProcess(OffloadedSpecOf(row()), data_, options_);
  ASSERT_TRUE(offloaded.ok()) << offloaded.status();
  ExpectSameBits(*plain, *offloaded);
  ExpectLedger(OffloadedSpecOf(row()), *offloaded);
  const StepResult& last = offloaded->steps.back();
  EXPECT_GT(last.host.read_bytes + last.nvme.read_bytes, 0);
  EXPECT_EQ(row().optimizer.tier == kNvme, last.nvme.written_bytes > 0);
}

TEST_P(OffloadParity, GoesOnWhereItWasSuspended) {
  const auto whole = TrainInProcess(PlainSpecOf(row()), data_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  options_.tiers->suspend_after = 2;
  const auto first = TrainInProcess(OffloadedSpecOf(row()), data_, options_);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->suspended_step.has_value());
  EXPECT_LE(*first->suspended_step, 2);
  options_.tiers->suspend_after.reset();
  options_.tiers->resume_step = first->suspended_step;
  const auto second = TrainInProcess(OffloadedSpecOf(row()), data_, options_);
  ASSERT_TRUE(second.ok()) << second.status();
  ExpectSameBits(*whole, Joined(*first, *second));
}

INSTANTIATE_TEST_SUITE_P(Settings, OffloadParity, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<OffloadCase>& info) {
                           return info.param.mesh.name;
                         });

// Without any offloading, all of the state is saved, and restored, when it is asked for.
TEST(SuspendParity, SavesWhatIsOnTheDevice) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    const MeshCase mesh{
        .name = "", .dp = 2, .tp = 2, .precision = v1::PRECISION_BF16, .zero_stage = zero_stage};
    const JobData data = MeshData(mesh);
    const v1::TrainingJobSpec spec = MeshSpec(mesh);
    const auto whole = TrainInProcess(spec, data);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ParityOptions options;
    options.tiers.emplace();
    options.tiers->nvme_root = NewFolder();
    options.tiers->suspend_after = 3;
    const auto first = TrainInProcess(spec, data, options);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_EQ(first->suspended_step, 3);
    options.tiers->suspend_after.reset();
    options.tiers->resume_step = 3;
    const auto second = TrainInProcess(spec, data, options);
    ASSERT_TRUE(second.ok()) << second.status();
    ExpectSameBits(*whole, Joined(*first, *second));
  }
}

}  // namespace
}  // namespace tessera
