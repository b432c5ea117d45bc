// The parity table with a process per rank: the same bits as with a thread per rank, and so, by
// mesh_parity_test, one rank's within the tolerances, which is checked again.
//
// TESSERA_LONG_TESTS=1: every row over every link, else a few rows, and the largest over mapped
// memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/mesh_cases.h"
#include "tests/parity/parity_harness.h"
#include "tests/parity/rank_processes.h"

namespace tessera {
namespace {

using Param = std::tuple<MeshCase, RankLink>;
class ProcessParity : public testing::TestWithParam<Param> {};

TEST_P(ProcessParity, SameAsThreadsAndOneRank) {
  const auto& [row, link] = GetParam();
  const JobData data = MeshData(row);
  TrainAsProcesses(MeshSpec(row), data, link, [&](const ParityRun& run) {
    // In the process of global_rank 0, so that the test's own has no threads to fork.
    const auto threads = TrainInProcess(MeshSpec(row), data);
    ASSERT_TRUE(threads.ok()) << threads.status();
    ExpectSameBits(*threads, run);
    const auto one = TrainInProcess(PlainSpec(row), data);
    ASSERT_TRUE(one.ok()) << one.status();
    ExpectSameTraining(row, *one, run);
  });
}

std::vector<Param> Rows() {
  const bool is_long = std::getenv("TESSERA_LONG_TESTS") != nullptr;
  const std::vector<MeshCase> all = MeshCases();
  std::vector<Param> rows;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_large = all[i].dp * all[i].cp * all[i].pp * all[i].tp >= 8;
    for (const RankLink link : {RankLink::kMapped, RankLink::kTcp, RankLink::kTwoHosts}) {
      const bool is_chosen = is_large ? link == RankLink::kMapped : i % 8 == 0;
      if (is_long || is_chosen) rows.emplace_back(all[i], link);
    }
  }
  return rows;
}

std::string LinkName(RankLink link) {
  switch (link) {
    case RankLink::kMapped:
      return "Mapped";
    case RankLink::kTcp:
      return "Tcp";
    case RankLink::kTwoHosts:
      return "TwoHosts";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Rows, ProcessParity, testing::ValuesIn(Rows()), [](const auto& info) {
  return std::get<0>(info.param).name + LinkName(std::get<1>(info.param));
});

}  // namespace
}  // namespace tessera
