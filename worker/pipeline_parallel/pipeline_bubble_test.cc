// Measured idle time of pipelines against the closed formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/pipeline_formulas.h"
#include "worker/pipeline_parallel/pipeline_runner.h"
#include "worker/pipeline_parallel/pipeline_testing.h"

namespace tessera {
namespace {

using plan::PipelineSchedule;
using plan::ScheduleOptions;

// Absolute difference of shares. One wake-up that is late by 1 ms on the critical path adds about
// 0.005 to the share of a run of 200 ms; the schedules to be told apart differ by more than 0.1.
constexpr double kTolerance = 0.05;
// Other load on the machine can only add: a late wake-up delays a stage and those that wait for it.
// So the least of some measurements is the nearest to what the schedule costs. More are taken only
// while none is within the tolerance, with stages that take longer, of which a wake-up that is late
// is a smaller part.
constexpr int kMeasurements = 3, kMostMeasurements = 18;
double SlownessOf(int measurement) { return 1 << std::min(4, measurement / kMeasurements); }

// Of a stage's micro-batch: what a chunk takes is its v-th part, so that all runs are of one work.
constexpr double kStageSeconds = 0.005;

plan::ChunkCosts CostsOf(const ScheduleOptions& options, double slowness = 1) {
  const double chunk_s = slowness * kStageSeconds / options.chunks;
  return {chunk_s, chunk_s, chunk_s, 0};
}

// Idle share of all stages, from the first action's begin to the last one's end.
double IdleShare(const std::vector<std::vector<MeasuredAction>>& ranks) {
  auto begin = ranks[0].front().begin, end = ranks[0].back().end;
  std::chrono::duration<double> busy(0);
  for (const std::vector<MeasuredAction>& actions : ranks) {
    begin = std::min(begin, actions.front().begin);
    end = std::max(end, actions.back().end);
    for (const MeasuredAction& each : actions) {
      if (plan::IsCompute(each.action.kind)) busy += each.end - each.begin;
    }
  }
  const std::chrono::duration<double> total = end - begin;
  return 1 - busy.count() / (static_cast<double>(ranks.size()) * total.count());
}

absl::StatusOr<double> Measure(const ScheduleOptions& options, double slowness) {
  std::vector<std::vector<MeasuredAction>> measured(options.stages);
  const std::vector<absl::Status> statuses =
      RunPipelineRanks(options.stages, absl::Seconds(20), [&](PipelineRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto lists, plan::MakeSchedule(options));
        const plan::StageActions& actions = lists[rank.pp_rank];
        SyntheticStage::Options stage_options;
        stage_options.schedule = options;
        stage_options.pp_rank = rank.pp_rank;
        stage_options.costs = CostsOf(options, slowness);
        for (int chunk = 0; chunk < options.chunks; ++chunk) {
          stage_options.slots.push_back(PeakMicroBatches(actions, chunk));
        }
        SyntheticStage stage(stage_options, rank.device, rank.stream);
        PipelineRunner runner(actions, rank.group);
        return runner.Run(
            stage, [] { return absl::OkStatus(); }, &measured[rank.pp_rank], rank.stream);
      });
  for (const absl::Status& status : statuses) TESSERA_RETURN_IF_ERROR(status);
  return IdleShare(measured);
}

double FormulaShare(const ScheduleOptions& options) {
  const plan::ChunkCosts costs = CostsOf(options);
  const double bubble_s = plan::BubbleFormula(options, costs);
  const double work_s = options.micro_batches * 3 * kStageSeconds;
  return bubble_s / (bubble_s + work_s);
}

double LeastIdleShare(const ScheduleOptions& options) {
  const double formula = FormulaShare(options);
  double least = 1;
  for (int i = 0; i < kMostMeasurements; ++i) {
    if (i >= kMeasurements && least < formula + kTolerance) break;
    const absl::StatusOr<double> share = Measure(options, SlownessOf(i));
    EXPECT_TRUE(share.ok()) << share.status();
    if (!share.ok()) break;
    least = std::min(least, *share);
  }
  std::cout << PipelineScheduleName(options.schedule) << " p=" << options.stages
            << " m=" << options.micro_batches << " v=" << options.chunks << ": idle share measured "
            << least << ", formula " << formula << std::endl;
  return least;
}

class PipelineBubble : public testing::TestWithParam<ScheduleOptions> {};

TEST_P(PipelineBubble, IsTheFormula) {
  EXPECT_NEAR(LeastIdleShare(GetParam()), FormulaShare(GetParam()), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, PipelineBubble,
    testing::Values(ScheduleOptions{PipelineSchedule::kNaive, 4, 8, 1},
                    ScheduleOptions{PipelineSchedule::kGpipe, 4, 8, 1},
                    ScheduleOptions{PipelineSchedule::k1f1b, 4, 8, 1},
                    ScheduleOptions{PipelineSchedule::kInterleaved1f1b, 4, 8, 2},
                    ScheduleOptions{PipelineSchedule::kZeroBubbleH1, 4, 8, 1},
                    ScheduleOptions{PipelineSchedule::kNaive, 3, 6, 1},
                    ScheduleOptions{PipelineSchedule::kGpipe, 3, 6, 1},
                    ScheduleOptions{PipelineSchedule::k1f1b, 3, 6, 1},
                    ScheduleOptions{PipelineSchedule::kInterleaved1f1b, 3, 6, 2},
                    ScheduleOptions{PipelineSchedule::kZeroBubbleH1, 3, 6, 1}),
    [](const auto& info) {
      return absl::StrCat(PipelineScheduleName(info.param.schedule), "_p", info.param.stages, "m",
                          info.param.micro_batches, "v", info.param.chunks);
    });

// Beyond being near its formula: weight gradients fill the bubble that 1f1b leaves.
TEST(PipelineBubbleGain, OfZeroBubbleOver1f1b) {
  const ScheduleOptions plain{PipelineSchedule::k1f1b, 4, 8, 1};
  const ScheduleOptions zero_bubble{PipelineSchedule::kZeroBubbleH1, 4, 8, 1};
  const double predicted = FormulaShare(plain) - FormulaShare(zero_bubble);
  EXPECT_GT(predicted, 2 * kTolerance);
  EXPECT_NEAR(LeastIdleShare(plain) - LeastIdleShare(zero_bubble), predicted, kTolerance);
}

}  // namespace
}  // namespace tessera
