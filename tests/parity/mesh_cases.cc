#include "tests/parity/mesh_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "worker/data/sample_order.h"
#include "worker/trainer/training_config.h"
#include "worker/trainer/verification.h"

namespace tessera {
namespace {

constexpr int kTime = 16, kLayers = 5, kGlobalBatch = 8, kSteps = 5;
constexpr int kMaskedId = 7;

}  // namespace

JobData MeshData(const MeshCase& row) {
  std::vector<int32_t> tokens = SyntheticTokens(kTime * 100 + 1, row.vocab, 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (row.masked == 1 && i / kTime % 3 == 0) tokens[i] = kMaskedId;
    if (row.masked == 2) tokens[i] = kMaskedId;
  }
  if (row.masked == 2) {
    // One valid target in the whole batch of each step: another sequence and position every time.
    const SampleOrder order(static_cast<int64_t>(tokens.size()), kTime, 0);
    for (int step = 0; step < kSteps; ++step) {
      const int64_t window = order.WindowBegin(step * kGlobalBatch + 3 * step % kGlobalBatch);
      tokens[window + 1 + 5 * step % kTime] = 3;
    }
  }
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(std::move(tokens));
  data.validation =
      std::make_unique<MemoryTokenSource>(SyntheticTokens(kTime * 7 + 3, row.vocab, 2));
  return data;
}

v1::TrainingJobSpec MeshSpec(const MeshCase& row) {
  v1::TrainingJobSpec spec = PlainSpec(row);
  spec.mutable_mesh()->set_dp(row.dp);
  spec.mutable_mesh()->set_cp(row.cp);
  spec.mutable_mesh()->set_pp(row.pp);
  spec.mutable_mesh()->set_tp(row.tp);
  spec.set_sequence_parallel(row.sequence_parallel);
  spec.set_pipeline_schedule(row.schedule);
  for (const int layers : row.chunk_layers) spec.add_chunk_layers(layers);
  spec.set_context_parallel(row.cp_kind);
  spec.set_recompute(row.recompute);
  spec.set_zero_stage(row.zero_stage);
  spec.mutable_batch()->set_micro_batches(row.micro_batches);
  spec.set_check_replicated_gradients(true);
  return spec;
}

v1::TrainingJobSpec PlainSpec(const MeshCase& row) {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(row.llama ? v1::MODEL_FAMILY_LLAMA : v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(row.vocab);
  model.set_context_length(20);
  model.set_layers(kLayers);
  model.set_heads(4);
  model.set_hidden_size(32);
  model.set_intermediate_size(64);
  model.set_tie_word_embeddings(row.tied);
  if (row.llama) {
    model.set_kv_heads(row.kv_heads == 0 ? 2 : row.kv_heads);
    model.set_attention_bias(row.attention_bias);
  }
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(kTime);
  if (row.masked != 0) spec.mutable_data()->add_ignore_target_ids(kMaskedId);
  spec.mutable_learning_rate()->set_peak(1e-3);
  spec.mutable_batch()->set_global_batch_size(kGlobalBatch);
  spec.set_precision(row.precision);
  spec.set_gradient_precision(v1::PRECISION_FP32);
  spec.set_steps(kSteps);
  spec.mutable_evaluation()->set_every_steps(kSteps);
  spec.mutable_optimizer()->set_epsilon(1e-6);
  return spec;
}

void ExpectSameTraining(const MeshCase& row, const ParityRun& one, const ParityRun& split) {
  const v1::TrainingJobSpec spec = MeshSpec(row);
  const v1::VerificationReport report = CompareTraining(
      ToleranceOf(DTypeOf(row.precision), LongestSum(spec)), split.record, one.record);
  EXPECT_TRUE(report.passed()) << report.DebugString();
  const double tolerance = report.steps(0).loss_tolerance();
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const StepResult &a = one.steps[i], &b = split.steps[i];
    ASSERT_EQ(b.validation_loss.has_value(), a.validation_loss.has_value());
    if (!a.validation_loss) continue;
    EXPECT_NEAR(*b.validation_loss, *a.validation_loss, tolerance * *a.validation_loss);
  }
}

std::vector<MeshCase> MeshCases() {
  using enum v1::PipelineSchedule;
  using enum v1::ContextParallelKind;
  using enum v1::Recompute;
  using enum v1::Precision;
  return {
      // Tensor parallel.
      {.name = "Tp2", .tp = 2},
      {.name = "Tp4", .tp = 4},
      {.name = "Tp2Sp", .tp = 2, .sequence_parallel = true},
      {.name = "Tp4Sp", .tp = 4, .sequence_parallel = true},
      {.name = "LlamaTp2", .tp = 2, .llama = true},
      {.name = "LlamaTp2Untied", .tp = 2, .llama = true, .tied = false},
      {.name = "LlamaTp4KvReplicated", .tp = 4, .llama = true},
      {.name = "LlamaTp4OneKvHeadSp",
       .tp = 4,
       .llama = true,
       .sequence_parallel = true,
       .kv_heads = 1,
       .attention_bias = true},
      {.name = "Tp4Vocabulary257", .tp = 4, .vocab = 257},
      {.name = "LlamaTp4Vocabulary257Sp",
       .tp = 4,
       .llama = true,
       .sequence_parallel = true,
       .vocab = 257,
       .tied = false},
      {.name = "Tp4MostlyPadding", .tp = 4, .vocab = 9},
      {.name = "Tp2OneValidToken", .tp = 2, .masked = 2},
      {.name = "Tp2RecomputeFull", .tp = 2, .recompute = RECOMPUTE_FULL},
      {.name = "Tp2SpRecomputeFull",
       .tp = 2,
       .sequence_parallel = true,
       .recompute = RECOMPUTE_FULL},
      {.name = "Tp2SpRecomputeAttention",
       .tp = 2,
       .sequence_parallel = true,
       .recompute = RECOMPUTE_ATTENTION},
      {.name = "Tp2Bf16", .tp = 2, .precision = PRECISION_BF16},
      {.name = "Tp2SpFp16", .tp = 2, .sequence_parallel = true, .precision = PRECISION_FP16},
      // Pipeline parallel.
      {.name = "Pp2", .pp = 2},
      {.name = "Pp4Micro8", .pp = 4, .micro_batches = 8},
      {.name = "Pp5FewerMicroBatchesThanStages", .pp = 5, .micro_batches = 2},
      {.name = "Pp2Naive", .pp = 2, .schedule = PIPELINE_SCHEDULE_NAIVE, .micro_batches = 4},
      {.name = "Pp2Gpipe", .pp = 2, .schedule = PIPELINE_SCHEDULE_GPIPE, .micro_batches = 4},
      {.name = "Pp4Gpipe", .pp = 4, .schedule = PIPELINE_SCHEDULE_GPIPE, .micro_batches = 8},
      {.name = "Pp2Interleaved",
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
       .micro_batches = 4},
      {.name = "Pp2InterleavedUneven",
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
       .chunk_layers = {1, 2, 1, 1},
       .micro_batches = 4},
      {.name = "Pp2InterleavedOneMicro",
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
       .micro_batches = 1},
      {.name = "Pp2ZeroBubble",
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .micro_batches = 4},
      {.name = "Pp4ZeroBubble",
       .pp = 4,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .micro_batches = 8},
      {.name = "Pp2ZeroBubbleRecomputeFull",
       .pp = 2,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .recompute = RECOMPUTE_FULL,
       .micro_batches = 4},
      {.name = "Pp2ZeroBubbleRecomputeAttention",
       .pp = 2,
       .llama = true,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .recompute = RECOMPUTE_ATTENTION,
       .micro_batches = 4},
      {.name = "Pp3Explicit", .pp = 3, .chunk_layers = {3, 1, 1}, .micro_batches = 4},
      {.name = "Pp2Untied", .pp = 2, .tied = false},
      {.name = "LlamaPp2Tied", .pp = 2, .llama = true},
      {.name = "LlamaPp2Untied", .pp = 2, .llama = true, .tied = false},
      {.name = "Pp2Masked", .pp = 2, .micro_batches = 4, .masked = 1},
      {.name = "Pp2OneValidToken", .pp = 2, .micro_batches = 4, .masked = 2},
      {.name = "Pp2Bf16", .pp = 2, .precision = PRECISION_BF16},
      {.name = "Pp2Fp16", .pp = 2, .precision = PRECISION_FP16},
      {.name = "OneStageGpipe", .schedule = PIPELINE_SCHEDULE_GPIPE, .micro_batches = 4},
      {.name = "OneStageZeroBubble",
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .micro_batches = 4},
      // Context parallel.
      {.name = "Cp2", .cp = 2},
      {.name = "Cp4", .cp = 4},
      {.name = "LlamaCp2", .cp = 2, .llama = true},
      {.name = "LlamaCp4OneKvHead", .cp = 4, .llama = true, .kv_heads = 1},
      {.name = "Cp2AllGather", .cp = 2, .cp_kind = CONTEXT_PARALLEL_KIND_ALL_GATHER},
      {.name = "LlamaCp4AllGather",
       .cp = 4,
       .llama = true,
       .cp_kind = CONTEXT_PARALLEL_KIND_ALL_GATHER},
      {.name = "Cp2Ulysses", .cp = 2, .cp_kind = CONTEXT_PARALLEL_KIND_ULYSSES},
      {.name = "LlamaCp4Ulysses", .cp = 4, .llama = true, .cp_kind = CONTEXT_PARALLEL_KIND_ULYSSES},
      {.name = "Cp2Masked", .cp = 2, .masked = 1},
      {.name = "Cp2OneValidToken", .cp = 2, .masked = 2},
      {.name = "Cp2RecomputeAttention", .cp = 2, .recompute = RECOMPUTE_ATTENTION},
      {.name = "Cp2RecomputeFull", .cp = 2, .llama = true, .recompute = RECOMPUTE_FULL},
      {.name = "Cp2Bf16", .cp = 2, .precision = PRECISION_BF16},
      {.name = "Cp2UlyssesFp16",
       .cp = 2,
       .cp_kind = CONTEXT_PARALLEL_KIND_ULYSSES,
       .precision = PRECISION_FP16},
      // Together.
      {.name = "Dp2Tp2", .dp = 2, .tp = 2},
      {.name = "Dp2Pp2Masked", .dp = 2, .pp = 2, .masked = 1},
      {.name = "Dp2Cp2Masked", .dp = 2, .cp = 2, .masked = 1},
      {.name = "Mesh3d", .dp = 2, .pp = 2, .tp = 2},
      {.name = "Mesh3dSpZeroBubble",
       .dp = 2,
       .pp = 2,
       .tp = 2,
       .llama = true,
       .sequence_parallel = true,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .tied = false},
      {.name = "Mesh3dSpInterleavedBf16",
       .dp = 2,
       .pp = 2,
       .tp = 2,
       .sequence_parallel = true,
       .schedule = PIPELINE_SCHEDULE_INTERLEAVED_1F1B,
       .precision = PRECISION_BF16},
      {.name = "Mesh4d", .dp = 2, .cp = 2, .pp = 2, .tp = 2},
      {.name = "Mesh4dLlamaSpAllGather",
       .dp = 2,
       .cp = 2,
       .pp = 2,
       .tp = 2,
       .llama = true,
       .sequence_parallel = true,
       .cp_kind = CONTEXT_PARALLEL_KIND_ALL_GATHER,
       .masked = 1},
      {.name = "Mesh4dUlyssesZeroBubbleRecompute",
       .dp = 2,
       .cp = 2,
       .pp = 2,
       .tp = 2,
       .schedule = PIPELINE_SCHEDULE_ZERO_BUBBLE_H1,
       .cp_kind = CONTEXT_PARALLEL_KIND_ULYSSES,
       .recompute = RECOMPUTE_FULL},
      {.name = "Cp2Pp2Tp2SpFp16",
       .cp = 2,
       .pp = 2,
       .tp = 2,
       .sequence_parallel = true,
       .precision = PRECISION_FP16},
      {.name = "Cp2Tp4Llama257",
       .cp = 2,
       .tp = 4,
       .llama = true,
       .sequence_parallel = true,
       .vocab = 257,
       .tied = false,
       .attention_bias = true},
      {.name = "Pp4Tp4", .pp = 4, .tp = 4, .sequence_parallel = true, .micro_batches = 4},
      // Sharded; zero_parity_test compares all stages bit for bit.
      {.name = "Dp4Zero1", .dp = 4, .zero_stage = 1},
      {.name = "Dp2Tp2SpZero2", .dp = 2, .tp = 2, .sequence_parallel = true, .zero_stage = 2},
      {.name = "Cp2Pp2Zero3", .cp = 2, .pp = 2, .zero_stage = 3},
      {.name = "Mesh4dZero3Bf16",
       .dp = 2,
       .cp = 2,
       .pp = 2,
       .tp = 2,
       .precision = PRECISION_BF16,
       .zero_stage = 3},
  };
}

void ExpectSameBits(const ParityRun& first, const ParityRun& other) {
  ASSERT_EQ(other.steps.size(), first.steps.size());
  for (size_t i = 0; i < first.steps.size(); ++i) {
    const StepResult &a = first.steps[i], &b = other.steps[i];
    EXPECT_EQ(b.loss, a.loss) << "step " << a.step;
    EXPECT_EQ(b.skipped_steps, a.skipped_steps) << "step " << a.step;
    EXPECT_EQ(b.validation_loss, a.validation_loss) << "step " << a.step;
    if (a.gradient_norm != a.gradient_norm) continue;  // skipped
    EXPECT_EQ(b.gradient_norm, a.gradient_norm) << "step " << a.step;
  }
  ASSERT_EQ(other.record.parameters.size(), first.record.parameters.size());
  for (size_t i = 0; i < first.record.parameters.size(); ++i) {
    const TrainingRecord::Parameter &a = first.record.parameters[i],
                                    &b = other.record.parameters[i];
    EXPECT_TRUE(b.values == a.values) << a.name;
    EXPECT_TRUE(b.exp_avg == a.exp_avg) << "exp_avg of " << a.name;
  }
}

}  // namespace tessera
