// zero_stage 0, 1, 2 and 3 compute the same bits: losses, gradient norms, final weights and AdamW's
// means, in every mesh and with both ways of reducing gradients.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/parity/mesh_cases.h"
#include "tests/parity/parity_harness.h"

namespace tessera {
namespace {

struct ZeroCase {
  MeshCase mesh;
  int global_batch = 8;
  double first_loss_scale = 0;  // fp16; 0: the default
  bool fp32_gradients = false;  // below fp32
  int prefetch_units = 1;       // of zero_stage 3
  int64_t resident_parameters = 0;
};

// Units of 13 to 20 thousand elements in fp32; 5 layers; vocabulary 61, so no zero group of 3, 4 or
// 5 divides an embedding, nor the norms of 32.
std::vector<ZeroCase> Cases() {
  using enum v1::PipelineSchedule;
  using enum v1::ContextParallelKind;
  using enum v1::Recompute;
  using enum v1::Precision;
  return {
      {.mesh = {.name = "Dp2", .dp = 2}},
      {.mesh = {.name = "Dp3Bf16Masked", .dp = 3, .precision = PRECISION_BF16, .masked = 1},
       .global_batch = 12,
       .fp32_gradients = true},
      {.mesh = {.name = "Dp4Bf16Untied",
                .dp = 4,
                .llama = true,
                .precision = PRECISION_BF16,
                .tied = false},
       .prefetch_units = 3},
      {.mesh = {.name = "Dp5OneMicroBatch", .dp = 5, .micro_batches = 1},
       .global_batch = 10,
       .prefetch_units = 0},
      // Overflows until the scale has come down.
      {.mesh = {.name = "Dp2Fp16Overflow", .dp = 2, .precision = PRECISION_FP16},
       .first_loss_scale = 1 << 22},
      {.mesh = {.name = "Cp2", .cp = 2}, .resident_parameters = 100},
      {.mesh = {.name = "Dp2Cp2Ulysses",
                .dp = 2,
                .cp = 2,
                .cp_kind = CONTEXT_PARALLEL_KIND_ULYSSES,
                .precision = PRECISION_BF16}},
      {.mesh = {.name = "Dp2Tp2SpReplicatedKv",
                .dp = 2,
                .tp = 2,
                .llama = true,
                .sequence_parallel = true,
                .kv_heads = 1,
                .attention_bias = true}},
      {.mesh = {.name = "Dp3Pp2Tied", .dp = 3, .pp = 2}, .global_batch = 12},
      {.mesh = {.name = "Dp2Pp2ZeroBubbleRecompute",
                .dp = 2,
                .pp = 2,
                .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
                .recompute = RECOMPUTE_FULL,
                .micro_batches = 4}},
      {.mesh = {.name = "Dp2Pp2InterleavedUntied",
                .dp = 2,
                .pp = 2,
                .llama = true,
                .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
                .recompute = RECOMPUTE_ATTENTION,
                .micro_batches = 4,
                .tied = false}},
      {.mesh = {.name = "Dp2Pp2Gpipe",
                .dp = 2,
                .pp = 2,
                .schedule = PIPELINE_SCHEDULE_GPIPE,
                .micro_batches = 4},
       .prefetch_units = 2},
      {.mesh = {.name = "Mesh4dSpFp16",
                .dp = 2,
                .cp = 2,
                .pp = 2,
                .tp = 2,
                .sequence_parallel = true,
                .precision = PRECISION_FP16}},
  };
}

v1::TrainingJobSpec SpecOf(const ZeroCase& row, v1::GradientReduction reduction, int zero_stage) {
  v1::TrainingJobSpec spec = MeshSpec(row.mesh);
  spec.mutable_batch()->set_global_batch_size(row.global_batch);
  spec.clear_gradient_precision();
  if (row.fp32_gradients) spec.set_gradient_precision(v1::PRECISION_FP32);
  if (row.first_loss_scale > 0) {
    spec.mutable_loss_scale()->set_initial(row.first_loss_scale);
    spec.mutable_loss_scale()->set_hysteresis(1);
    spec.set_steps(12);
  }
  spec.set_gradient_reduction(reduction);
  spec.set_zero_stage(zero_stage);
  if (zero_stage == 3) {
    spec.mutable_parameter_gather()->set_prefetch_units(row.prefetch_units);
    spec.mutable_parameter_gather()->set_resident_parameters(row.resident_parameters);
  }
  return spec;
}

using Param = std::tuple<ZeroCase, v1::GradientReduction>;
class ZeroParity : public testing::TestWithParam<Param> {};

TEST_P(ZeroParity, EveryStageComputesTheSameBits) {
  const auto& [row, reduction] = GetParam();
  const JobData data = MeshData(row.mesh);
  const auto first = TrainInProcess(SpecOf(row, reduction, 0), data);
  ASSERT_TRUE(first.ok()) << first.status();
  if (row.first_loss_scale > 0) {
    EXPECT_GT(first->steps.back().skipped_steps, 0);
    EXPECT_LT(first->steps.back().skipped_steps, first->steps.back().step);
  }
  for (const int zero_stage : {1, 2, 3}) {
    SCOPED_TRACE(absl::StrCat("zero_stage ", zero_stage));
    const auto run = TrainInProcess(SpecOf(row, reduction, zero_stage), data);
    ASSERT_TRUE(run.ok()) << run.status();
    ExpectSameBits(*first, *run);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ZeroParity,
                         testing::Combine(testing::ValuesIn(Cases()),
                                          testing::Values(v1::GRADIENT_REDUCTION_ONCE,
                                                          v1::GRADIENT_REDUCTION_PER_MICRO_BATCH)),
                         [](const testing::TestParamInfo<Param>& info) {
                           return absl::StrCat(
                               std::get<0>(info.param).mesh.name,
                               std::get<1>(info.param) == v1::GRADIENT_REDUCTION_ONCE
                                   ? "Once"
                                   : "PerMicroBatch");
                         });

// The gradients of a rank are clipped by its own norm before they are reduced: all must be whole.
TEST(ZeroParityClipping, BeforeReduce) {
  const MeshCase mesh{.name = "", .dp = 2, .tp = 2, .sequence_parallel = true};
  const JobData data = MeshData(mesh);
  ParityRun first;
  for (const int zero_stage : {0, 1, 2, 3}) {
    v1::TrainingJobSpec spec = MeshSpec(mesh);
    spec.set_zero_stage(zero_stage);
    spec.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
    spec.mutable_optimizer()->set_gradient_clip_norm(0.1);
    auto run = TrainInProcess(spec, data);
    ASSERT_TRUE(run.ok()) << run.status();
    if (zero_stage == 0) {
      first = *std::move(run);
    } else {
      ExpectSameBits(first, *run);
    }
  }
}

// One replica on two stages is clipped to the norm itself, a tied embedding's parts added up first.
TEST(ZeroParityClipping, BeforeReduceOfAPipeline) {
  const MeshCase mesh{.name = "", .pp = 2};
  v1::TrainingJobSpec spec = MeshSpec(mesh);
  spec.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
  spec.mutable_optimizer()->set_gradient_clip_norm(0.1);
  const auto run = TrainInProcess(spec, MeshData(mesh));
  ASSERT_TRUE(run.ok()) << run.status();
  for (const StepResult& step : run->steps) {
    if (step.step > 0) {
      EXPECT_NEAR(step.gradient_norm, 0.1, 1e-6);
    }
  }
}

}  // namespace
}  // namespace tessera
