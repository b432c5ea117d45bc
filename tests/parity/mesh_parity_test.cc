// Every axis of the mesh, alone and together, against one rank: loss, global gradient norm and all
// parameters after five steps. Ranks are threads with a device each; tests/e2e/verify_test.py
// compares layouts of worker processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/parity/mesh_cases.h"
#include "tests/parity/parity_harness.h"

namespace tessera {
namespace {

class MeshParity : public testing::TestWithParam<MeshCase> {};

TEST_P(MeshParity, SameAsOneRank) {
  const MeshCase& row = GetParam();
  const JobData data = MeshData(row);
  auto split = TrainInProcess(MeshSpec(row), data);
  ASSERT_TRUE(split.ok()) << split.status();
  auto one = TrainInProcess(PlainSpec(row), data);
  ASSERT_TRUE(one.ok()) << one.status();
  ExpectSameTraining(row, *one, *split);
}

// A step of a real pipeline as a timeline: every action of every stage, an arrow for every message.
TEST(MeshTrace, ShowsEveryActionOfTheStep) {
  const MeshCase row{.name = "", .pp = 2, .tp = 2, .micro_batches = 4};
  v1::TrainingJobSpec spec = MeshSpec(row);
  spec.mutable_trace()->set_step(2);
  spec.mutable_trace()->set_path("trace");
  const auto run = TrainInProcess(spec, MeshData(row));
  ASSERT_TRUE(run.ok()) << run.status();
  const plan::Timeline& timeline = run->timeline;
  EXPECT_TRUE(plan::CheckTimeline(timeline).ok()) << plan::CheckTimeline(timeline);
  EXPECT_EQ(timeline.row_names.size(), 2u);
  EXPECT_EQ(timeline.slices.size(), 2u * 4 * 4);  // forward, backward, a send and a receive each
  EXPECT_EQ(timeline.flows.size(), 2u * 4);
}

INSTANTIATE_TEST_SUITE_P(Rows, MeshParity, testing::ValuesIn(MeshCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
