#include "plan/pipeline_messages.h"

#include <gtest/gtest.h>

#include "plan/pipeline_simulation.h"

namespace tessera::plan {
namespace {

Action Forward(int micro_batch) { return {.micro_batch = micro_batch}; }

TEST(PipelineMessages, ReceivesEarlyWhereOrdersDiffer) {
  const std::vector<StageActions> lists =
      AddMessages({{Forward(0), Forward(1)}, {Forward(1), Forward(0)}}, 1, SendTime::kAtOnce);
  const StageActions expected = {{ActionKind::kRecvActivation, 0, 0, 0},
                                 {ActionKind::kRecvActivation, 0, 1, 0},
                                 Forward(1),
                                 Forward(0)};
  EXPECT_EQ(lists[1], expected);
  const auto simulation = SimulatePipeline(lists, {});
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_EQ(simulation->stages[1].peak_received_early, 1);
}

TEST(PipelineMessages, WrapsToTheNextChunk) {
  const std::vector<StageActions> lists = AddMessages(
      {{{.chunk = 0}, {.chunk = 1}}, {{.chunk = 0}, {.chunk = 1}}}, 2, SendTime::kAtOnce);
  const StageActions expected = {{.chunk = 0},
                                 {ActionKind::kSendActivation, 0, 0, 1},
                                 {ActionKind::kRecvActivation, 1, 0, 1},
                                 {.chunk = 1},
                                 {ActionKind::kSendActivation, 1, 0, 1}};
  EXPECT_EQ(lists[0], expected);
}

}  // namespace
}  // namespace tessera::plan
