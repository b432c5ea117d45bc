// Every axis of the mesh, alone and together, against one rank: loss, global gradient norm and all
// parameters after five steps. Ranks are threads with a device each; mesh_process_test runs some of
// the rows as processes.
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

INSTANTIATE_TEST_SUITE_P(Rows, MeshParity, testing::ValuesIn(MeshCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
