#include "worker/pipeline_parallel/measured_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/pipeline_timeline.h"
#include "plan/timeline_svg.h"
#include "plan/trace_events.h"
#include "worker/pipeline_parallel/pipeline_testing.h"

namespace tessera {
namespace {

using plan::ActionKind;
using plan::PipelineSchedule;
using plan::ScheduleOptions;
using plan::SliceCategory;

constexpr absl::Duration kWatchdog = absl::Seconds(20);

// Two runs, one after the other.
std::vector<std::vector<MeasuredAction>> Measure(const ScheduleOptions& options) {
  std::vector<std::vector<MeasuredAction>> measured(options.stages);
  const std::vector<absl::Status> statuses =
      RunPipelineRanks(options.stages, kWatchdog, [&](PipelineRank& rank) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const auto lists, plan::MakeSchedule(options));
        PipelineRunner runner(lists[rank.pp_rank], rank.group);
        for (int run = 0; run < 2; ++run) {
          SyntheticStage::Options stage_options;
          stage_options.schedule = options;
          stage_options.pp_rank = rank.pp_rank;
          stage_options.run = run;
          for (int chunk = 0; chunk < options.chunks; ++chunk) {
            stage_options.slots.push_back(PeakMicroBatches(runner.actions(), chunk));
          }
          SyntheticStage stage(stage_options, rank.device, rank.stream);
          TESSERA_RETURN_IF_ERROR(runner.Run(
              stage, [] { return absl::OkStatus(); }, &measured[rank.pp_rank], rank.stream));
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return measured;
}

std::vector<std::string> Names(int p) {
  std::vector<std::string> names;
  for (int i = 0; i < p; ++i) names.push_back(absl::StrCat("workers/w", i, ", pp_rank ", i));
  return names;
}

// With two stages interleaved, activations and gradients share a channel: the hardest to match.
class MeasuredTimelineTest : public testing::TestWithParam<ScheduleOptions> {};

TEST_P(MeasuredTimelineTest, HasEverySliceAndJoinsEachSendToItsReceive) {
  const ScheduleOptions& options = GetParam();
  const auto measured = Measure(options);
  const plan::Timeline timeline = MeasuredTimeline(measured, Names(options.stages), "a run");
  ASSERT_TRUE(plan::CheckTimeline(timeline).ok()) << plan::CheckTimeline(timeline);
  EXPECT_EQ(timeline.title, "a run");
  EXPECT_EQ(timeline.row_names, Names(options.stages));

  size_t slice = 0, messages = 0;
  double first_s = 1;
  for (int pp_rank = 0; pp_rank < options.stages; ++pp_rank) {
    for (const MeasuredAction& each : measured[pp_rank]) {
      ASSERT_LT(slice, timeline.slices.size());
      const plan::TimelineSlice& drawn = timeline.slices[slice++];
      EXPECT_EQ(drawn.row, pp_rank);
      EXPECT_EQ(drawn.category, plan::CategoryOf(each.action.kind));
      EXPECT_EQ(drawn.micro_batch, each.action.micro_batch);
      EXPECT_EQ(drawn.chunk, each.action.chunk);
      EXPECT_NEAR(drawn.end_s - drawn.begin_s,
                  std::chrono::duration<double>(each.end - each.begin).count(), 1e-9);
      first_s = std::min(first_s, drawn.begin_s);
      messages += plan::IsSend(each.action.kind) ? 1 : 0;
    }
  }
  EXPECT_EQ(slice, timeline.slices.size());
  EXPECT_EQ(first_s, 0);

  EXPECT_EQ(timeline.flows.size(), messages);
  std::set<int> sends, receives;
  for (const plan::TimelineFlow& flow : timeline.flows) {
    const plan::TimelineSlice& from = timeline.slices[flow.from_slice];
    const plan::TimelineSlice& to = timeline.slices[flow.to_slice];
    EXPECT_EQ(from.category, SliceCategory::kSend);
    EXPECT_EQ(to.category, SliceCategory::kReceive);
    EXPECT_EQ(from.micro_batch, to.micro_batch);
    const bool is_activation = absl::StartsWith(from.name, "send_activation");
    EXPECT_EQ(absl::StartsWith(to.name, "recv_activation"), is_activation);
    const int from_global = from.chunk * options.stages + from.row;
    const int to_global = to.chunk * options.stages + to.row;
    EXPECT_EQ(to_global, from_global + (is_activation ? 1 : -1));
    EXPECT_LT(from.begin_s, to.end_s);  // nothing is received before it is sent
    sends.insert(flow.from_slice);
    receives.insert(flow.to_slice);
  }
  EXPECT_EQ(sends.size(), messages);
  EXPECT_EQ(receives.size(), messages);

  const auto svg = plan::TimelineSvg(timeline, {.draw_flows = true});
  ASSERT_TRUE(svg.ok()) << svg.status();
  EXPECT_TRUE(absl::StrContains(*svg, "workers/w0, pp_rank 0"));
  const auto trace = plan::TraceEventsJson(timeline);
  EXPECT_TRUE(trace.ok()) << trace.status();
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, MeasuredTimelineTest,
    testing::Values(ScheduleOptions{PipelineSchedule::kInterleaved1f1b, 2, 5, 2},
                    ScheduleOptions{PipelineSchedule::kZeroBubbleH1, 4, 6, 1},
                    ScheduleOptions{PipelineSchedule::k1f1b, 1, 3, 1}),
    [](const auto& info) { return PipelineScheduleName(info.param.schedule); });

// Of a run that has failed there is what was done: a send without its receive has no arrow.
TEST(MeasuredTimeline, OfARunThatFailed) {
  const std::chrono::steady_clock::time_point start(std::chrono::seconds(100));
  const auto at = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  const std::vector<std::vector<MeasuredAction>> ranks = {
      {{{ActionKind::kForward, 0, 0, -1}, at(2), at(4)},
       {{ActionKind::kSendActivation, 0, 0, 1}, at(4), at(5)},
       {{ActionKind::kSendActivation, 0, 1, 1}, at(6), at(7)}},
      {{{ActionKind::kRecvActivation, 0, 0, 0}, at(1), at(5)}},
      {}};
  const plan::Timeline timeline = MeasuredTimeline(ranks, Names(3), "");
  ASSERT_EQ(timeline.slices.size(), 4U);
  ASSERT_EQ(timeline.flows.size(), 1U);
  EXPECT_EQ(timeline.flows[0].from_slice, 1);
  EXPECT_EQ(timeline.flows[0].to_slice, 3);
  EXPECT_NEAR(timeline.slices[0].begin_s, 0.001, 1e-9);
  EXPECT_NEAR(timeline.slices[3].begin_s, 0, 1e-9);
  EXPECT_TRUE(plan::CheckTimeline(timeline).ok());
  EXPECT_TRUE(plan::CheckTimeline(MeasuredTimeline({{}, {}}, Names(2), "")).ok());
}

}  // namespace
}  // namespace tessera
