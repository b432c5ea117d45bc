// Small cases by hand; tests/parity/ledger_test.cc compares with what runs measure.
#include "plan/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "plan/ledger_bytes.h"
#include "plan/ledger_schedule.h"
#include "plan/unit_buffers.h"

namespace tessera::plan {
namespace {

using enum LedgerCategory;

// Sizes whose tensors are all multiples of the arena's 128 bytes. gpt2: a layer has
// 12*C^2 + 13*C parameters.
constexpr int kHidden = 128, kHeads = 4, kIntermediate = 512, kVocab = 256, kTime = 128;
constexpr int64_t kLayerElements = 12 * kHidden * kHidden + 13 * kHidden;

LedgerRequest Gpt2(const MeshSize& mesh, int pp_rank = 0, int micro_batches = 1,
                   PipelineSchedule schedule = PipelineSchedule::k1f1b, int chunks = 1) {
  LedgerRequest request;
  TrafficRequest& job = request.job;
  job.model = {.vocab_size = kVocab,
               .context_length = kTime,
               .layers = 4,
               .heads = kHeads,
               .kv_heads = kHeads,
               .head_size = kHidden / kHeads,
               .hidden_size = kHidden,
               .intermediate_size = kIntermediate};
  job.mesh = mesh;
  job.chunks = (*PartitionStages(4, mesh.pp, chunks, {}, LayerCosts()))[pp_rank];
  job.schedule = schedule;
  job.micro_batches = micro_batches;
  job.sequence_length = kTime;
  request.schedule = {schedule, mesh.pp, micro_batches, chunks};
  request.pp_rank = pp_rank;
  return request;
}

int64_t Bytes(const LedgerRequest& request, LedgerCategory category) {
  return PredictLedger(request).of(category);
}

// 2 layers, without embedding and head: of a middle stage.
LedgerRequest MiddleStage(const MeshSize& mesh) {
  LedgerRequest request = Gpt2(mesh);
  request.job.chunks = {{{1, 2}, false, false}};
  request.pp_rank = 1;
  return request;
}

TEST(Ledger, ZeroStagesShardWhatTheyShould) {
  const MeshSize mesh{.dp = 2, .cp = 2, .pp = 4};
  const int64_t elements = 2 * kLayerElements;
  struct Case {
    int zero_stage;
    int64_t parameters, gradients, optimizer;
  };
  for (const Case& row :
       {Case{0, 4 * elements, 4 * elements, 8 * elements},
        Case{1, 4 * elements, 4 * elements, 2 * elements},
        Case{2, 4 * elements, elements, 2 * elements}, Case{3, elements, elements, 2 * elements}}) {
    SCOPED_TRACE(row.zero_stage);
    LedgerRequest request = MiddleStage(mesh);
    request.job.zero_stage = row.zero_stage;
    EXPECT_EQ(Bytes(request, kParameters), row.parameters);
    EXPECT_EQ(Bytes(request, kGradients), row.gradients);
    EXPECT_EQ(Bytes(request, kOptimizer), row.optimizer);
  }
}

TEST(Ledger, BelowFp32TheOptimizerHasAMasterAndAccumulationAPlace) {
  LedgerRequest request = MiddleStage({.dp = 4, .pp = 4});
  request.job.element_bytes = 2;
  request.job.zero_stage = 1;
  request.job.micro_batches = request.schedule.micro_batches = 2;
  EXPECT_EQ(Bytes(request, kParameters), 2 * kLayerElements * 2);
  EXPECT_EQ(Bytes(request, kOptimizer), 2 * kLayerElements * 12 / 4);
  EXPECT_EQ(Bytes(request, kGradients), 2 * kLayerElements * 4);
  request.job.gradient_reduction = GradientReduction::kPerMicroBatch;
  EXPECT_EQ(Bytes(request, kGradients), 2 * kLayerElements * (4 + 1));
}

TEST(Ledger, AGroupOfOneShardsNothing) {
  LedgerRequest request = Gpt2({});
  const RankLedger whole = PredictLedger(request);
  request.job.zero_stage = 3;
  EXPECT_EQ(PredictLedger(request).peak_bytes, whole.peak_bytes);
}

// What one micro-batch of one sequence keeps of a middle stage's layers, in fp32.
constexpr int64_t kRows = kTime;
constexpr int64_t kNormBytes = kRows * (kHidden + 2) * 4;
constexpr int64_t kInnerBytes =
    2 * kNormBytes + kRows * kHidden * 4 + 2 * kRows * kIntermediate * 4;
constexpr int64_t kAttentionBytes = kRows * (3 * kHidden + kHidden + kHeads) * 4;
constexpr int64_t kResidualBytes = kRows * kHidden * 4;
constexpr int64_t kMicroBatchBytes =
    2 * (kInnerBytes + kAttentionBytes + kResidualBytes) + 2 * kResidualBytes;
// And what all share: d_output, d_branch, d_qkv, d_up.
constexpr int64_t kSharedBytes = kRows * (kHidden + kHidden + 3 * kHidden + kIntermediate) * 4;

TEST(Ledger, HoldsMicroBatchesAsTheScheduleDoes) {
  using enum PipelineSchedule;
  for (int pp_rank = 0; pp_rank < 4; ++pp_rank) {
    SCOPED_TRACE(pp_rank);
    auto held = [&](PipelineSchedule schedule, int micro_batches) {
      LedgerRequest request = MiddleStage({.pp = 4});
      request.pp_rank = pp_rank;
      request.schedule.schedule = schedule;
      request.schedule.micro_batches = micro_batches;
      const int64_t bytes = Bytes(request, kActivations) - kSharedBytes;
      EXPECT_EQ(bytes % kMicroBatchBytes, 0);
      return bytes / kMicroBatchBytes;
    };
    EXPECT_EQ(held(k1f1b, 8), 4 - pp_rank);
    EXPECT_EQ(held(k1f1b, 2), std::min(2, 4 - pp_rank));
    EXPECT_EQ(held(k1f1b, 1 << 20), 4 - pp_rank);
    EXPECT_EQ(held(kGpipe, 8), 8);
    EXPECT_EQ(held(kNaive, 1 << 20), 1 << 20);
    EXPECT_EQ(held(kZeroBubbleH1, 8), 4);
  }
}

TEST(Ledger, RecomputeKeepsOneSetForAllLayers) {
  LedgerRequest request = MiddleStage({.pp = 4});
  request.pp_rank = 0;
  request.schedule.micro_batches = 8;  // 4 are held
  request.job.recompute_layers = {0, 4};
  const int64_t none = Bytes(request, kActivations);
  EXPECT_EQ(none, kSharedBytes + 4 * kMicroBatchBytes);
  request.job.recompute = RecomputeKind::kAttention;
  EXPECT_EQ(Bytes(request, kActivations), none - (4 * 2 - 1) * kAttentionBytes);
  request.job.recompute = RecomputeKind::kFull;
  EXPECT_EQ(Bytes(request, kActivations), none - (4 * 2 - 1) * (kAttentionBytes + kInnerBytes));
  request.job.recompute_layers = {2, 2};  // one of the stage's two
  EXPECT_EQ(Bytes(request, kActivations), none - (4 - 1) * (kAttentionBytes + kInnerBytes));
  request.job.recompute_layers = {3, 1};  // none of them
  EXPECT_EQ(Bytes(request, kActivations), none);
}

TEST(Ledger, SequenceParallelismShardsTheNormRegions) {
  LedgerRequest request = MiddleStage({.pp = 4, .tp = 4});
  const int64_t whole = Bytes(request, kActivations);
  request.job.sequence_parallel = true;
  // Two layers of 2 norms, middle and output; input and gradient; d_branch. In their place two
  // buffers of all rows, which all layers share.
  const int64_t norm_regions = 2 * (2 * kNormBytes + 2 * kResidualBytes) + 3 * kResidualBytes;
  EXPECT_EQ(Bytes(request, kActivations), whole - norm_regions * 3 / 4 + 2 * kResidualBytes);
}

// Checks of replicated gradients go through a copy of the largest: positions, or with sequence
// parallelism a bias.
TEST(Ledger, ReplicatedGradientsAreCheckedInACopy) {
  LedgerRequest request = Gpt2({.tp = 2});
  const int64_t none = Bytes(request, kCommunication) - kArenaAlignmentBytes;  // an empty buffer
  request.job.checks_replicated_gradients = true;
  EXPECT_EQ(Bytes(request, kCommunication), none + kTime * kHidden * 4);
  request.job.sequence_parallel = true;
  EXPECT_EQ(Bytes(request, kCommunication), none + kHidden * 4);
}

TEST(Ledger, GatheredUnitsAndWholeGradientsPass) {
  LedgerRequest request = MiddleStage({.dp = 2, .pp = 4});
  request.job.zero_stage = 1;
  const int64_t held = Bytes(request, kCommunication);
  const int64_t unit = kLayerElements * 4;
  // The first layer's whole gradients while the last's are reduced.
  request.job.zero_stage = 2;
  EXPECT_EQ(Bytes(request, kCommunication), held + 2 * unit);
  // A layer's weights and gradients: the first's gather waits for the last's reduction.
  request.job.zero_stage = 3;
  request.prefetch_units = 0;
  EXPECT_EQ(Bytes(request, kCommunication), held + 2 * unit);
  // And the first's weights, gathered before.
  request.prefetch_units = 1;
  EXPECT_EQ(Bytes(request, kCommunication), held + 3 * unit);
  request.job.resident_parameters = kLayerElements;  // stay whole
  EXPECT_EQ(Bytes(request, kCommunication), held + 2 * unit);
  EXPECT_EQ(Bytes(request, kParameters), 2 * unit);
}

TEST(UnitBuffers, AReductionGivesItsBufferBackWhenTheNextStarts) {
  LedgerRequest request = MiddleStage({.dp = 2, .pp = 4});
  request.job.zero_stage = 2;
  const std::vector<UnitSize> units =
      UnitSizesOf(request.job.model, request.job.mesh, request.job.chunks);
  const BigSize unit = BigSize(kLayerElements) * 4;
  UnitBuffers buffers(request, units, /*micro_batches=*/2);
  buffers.AcquireGradients(0);
  buffers.GradientsReady(0);  // of the first micro-batch: not reduced yet
  EXPECT_EQ(buffers.held_bytes(), unit);
  buffers.AcquireGradients(0);
  buffers.GradientsReady(0);
  EXPECT_EQ(buffers.held_bytes(), unit);  // pending
  buffers.AcquireGradients(1);
  EXPECT_EQ(buffers.held_bytes(), 2 * unit);
  buffers.GradientsReady(1);
  buffers.GradientsReady(1);
  EXPECT_EQ(buffers.held_bytes(), unit);
  buffers.AcquireGradients(0);  // waits for nothing: its own reduction has completed
  EXPECT_EQ(buffers.held_bytes(), 2 * unit);
  EXPECT_EQ(buffers.peak_bytes(), 2 * unit);
}

// However many micro-batches there are, as many are held.
TEST(ShortenedSchedule, HoldsAsMuchAsTheWhole) {
  for (const PipelineSchedule schedule : kPipelineSchedules) {
    const bool interleaved = schedule == PipelineSchedule::kInterleaved1f1b;
    for (const int stages : {1, 2, 3, 5}) {
      if (interleaved && stages == 1) continue;
      for (const int micro_batches : {1, 2, 3, 7, 16, 21, 22, 23, 40, 64}) {
        const ScheduleOptions options{schedule, stages, micro_batches, interleaved ? 3 : 1};
        const auto whole = *MakeSchedule(options);
        const auto shortened = *MakeSchedule(ShortenedSchedule(options));
        for (int pp_rank = 0; pp_rank < stages; ++pp_rank) {
          const auto held = PeakMicroBatches(options, whole[pp_rank]);
          EXPECT_EQ(PeakMicroBatches(options, shortened[pp_rank]), held)
              << PipelineScheduleName(schedule) << " p " << stages << " m " << micro_batches
              << " pp_rank " << pp_rank;
          if (interleaved) continue;
          EXPECT_EQ(LeastMicroBatches(options, pp_rank), held);
        }
      }
    }
  }
}

TEST(Ledger, TheLeastIsALowerBound) {
  for (const PipelineSchedule schedule : kPipelineSchedules) {
    const int chunks = schedule == PipelineSchedule::kInterleaved1f1b ? 2 : 1;
    for (const int zero_stage : {0, 3}) {
      for (const int pp_rank : {0, 1}) {
        LedgerRequest request = Gpt2({.dp = 2, .pp = 2}, pp_rank, 4, schedule, chunks);
        request.job.zero_stage = zero_stage;
        const int64_t total = PredictLedger(request).total_bytes();
        const int64_t least = PredictLeastBytes(request);
        EXPECT_LE(least, total);
        // Of a schedule without rounds it lacks only what comes and goes.
        if (zero_stage == 0 && chunks == 1) {
          EXPECT_EQ(least, total);
        }
      }
    }
  }
}

TEST(Ledger, OfAllStagesAsOfEach) {
  const MeshSize mesh{.dp = 2, .pp = 4};
  const auto stages = *PartitionStages(4, mesh.pp, 1, {}, LayerCosts());
  const std::vector<RankLedger> ledgers = PredictLedgers(Gpt2(mesh, 0, 3), stages);
  ASSERT_EQ(ledgers.size(), stages.size());
  for (int pp_rank = 0; pp_rank < mesh.pp; ++pp_rank) {
    EXPECT_EQ(ledgers[pp_rank].peak_bytes, PredictLedger(Gpt2(mesh, pp_rank, 3)).peak_bytes);
  }
}

TEST(Ledger, AbsurdSizesStopAtTheLargest) {
  LedgerRequest request = Gpt2({});
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  request.job.model.hidden_size = int64_t{1} << 50;
  const RankLedger ledger = PredictLedger(request);
  EXPECT_EQ(ledger.of(kParameters), kMax);
  EXPECT_EQ(ledger.total_bytes(), kMax);
}

}  // namespace
}  // namespace tessera::plan
