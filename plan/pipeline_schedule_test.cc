#include "plan/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::plan {
namespace {

std::vector<StageActions> Make(PipelineSchedule schedule, int p, int m, int v = 1) {
  auto stages = MakeSchedule({.schedule = schedule, .stages = p, .micro_batches = m, .chunks = v});
  EXPECT_TRUE(stages.ok()) << stages.status();
  return *std::move(stages);
}

// "F0 F1 B0 ..."; with chunks "F0.1"; messages as "sa0>1", "rg2<3".
std::string Text(const StageActions& actions, bool chunks = false, bool messages = false) {
  static constexpr const char* kShort[] = {"F", "B", "I", "W", "sa", "ra", "sg", "rg"};
  std::string text;
  for (const Action& action : actions) {
    if (!IsCompute(action.kind) && !messages) continue;
    if (!text.empty()) text += " ";
    text += kShort[static_cast<int>(action.kind)] + std::to_string(action.micro_batch);
    if (chunks) text += "." + std::to_string(action.chunk);
    if (action.peer >= 0) text += (IsSend(action.kind) ? ">" : "<") + std::to_string(action.peer);
  }
  return text;
}

TEST(PipelineSchedule, NaiveSendsAfterAllForwards) {
  const auto stages = Make(PipelineSchedule::kNaive, 2, 2);
  EXPECT_EQ(Text(stages[0], false, true), "F0 F1 sa0>1 sa1>1 rg0<1 B0 rg1<1 B1");
  EXPECT_EQ(Text(stages[1], false, true), "ra0<0 F0 ra1<0 F1 B0 B1 sg0>0 sg1>0");
}

TEST(PipelineSchedule, GpipeSendsAtOnce) {
  const auto stages = Make(PipelineSchedule::kGpipe, 2, 2);
  EXPECT_EQ(Text(stages[0], false, true), "F0 sa0>1 F1 sa1>1 rg0<1 B0 rg1<1 B1");
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  const auto stages = Make(PipelineSchedule::k1f1b, 3, 4);
  EXPECT_EQ(Text(stages[0]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(Text(stages[1]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Text(stages[2]), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(PipelineSchedule, ZeroBubbleH1FillsWithWeightGradients) {
  const auto stages = Make(PipelineSchedule::kZeroBubbleH1, 3, 4);
  EXPECT_EQ(Text(stages[0]), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(Text(stages[1]), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(Text(stages[2]), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST(PipelineSchedule, InterleavedGoesInRounds) {
  const auto stages = Make(PipelineSchedule::kInterleaved1f1b, 2, 3, 2);
  EXPECT_EQ(Text(stages[0], true), "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 B1.1 F2.1 B0.0 B1.0 B2.1 B2.0");
}

TEST(PipelineSchedule, OneStageSendsNothing) {
  EXPECT_EQ(Text(Make(PipelineSchedule::k1f1b, 1, 2)[0], false, true), "F0 B0 F1 B1");
  EXPECT_EQ(Text(Make(PipelineSchedule::kGpipe, 1, 2)[0], false, true), "F0 F1 B0 B1");
  EXPECT_EQ(Text(Make(PipelineSchedule::kZeroBubbleH1, 1, 2)[0], false, true), "F0 I0 W0 F1 I1 W1");
}

TEST(PipelineSchedule, ForwardOnlySendsAtOnceEvenNaive) {
  auto stages =
      MakeForwardSchedule({.schedule = PipelineSchedule::kNaive, .stages = 2, .micro_batches = 2});
  ASSERT_TRUE(stages.ok());
  EXPECT_EQ(Text((*stages)[0], false, true), "F0 sa0>1 F1 sa1>1");
  EXPECT_EQ(Text((*stages)[1], false, true), "ra0<0 F0 ra1<0 F1");
}

TEST(PipelineSchedule, ErrorsNameFieldValueAndRule) {
  const std::pair<ScheduleOptions, std::string> cases[] = {
      {{.stages = 0}, "stages: 0: must be at least 1"},
      {{.micro_batches = -1}, "micro_batches: -1: must be at least 1"},
      {{.chunks = 0}, "chunks: 0: must be at least 1"},
      {{.chunks = 2}, "chunks: 2: must be 1 with 1f1b"},
      {{.schedule = PipelineSchedule::kInterleaved1f1b, .stages = 2},
       "chunks: 1: must be at least 2 with interleaved_1f1b"},
      {{.stages = 1 << 20, .micro_batches = 1 << 20},
       "micro_batches: 1048576: stages * micro_batches * chunks is above 16777216"},
  };
  for (const auto& [options, message] : cases) {
    for (const auto& result : {MakeSchedule(options), MakeForwardSchedule(options)}) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(result.status().message(), message);
    }
  }
}

}  // namespace
}  // namespace tessera::plan
