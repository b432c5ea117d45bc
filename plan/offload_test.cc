#include "plan/offload.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/unit_sizes.h"

namespace tessera::plan {
namespace {

struct Case {
  std::string name;
  StateOffload offload;
  std::vector<int64_t> elements;
  std::vector<bool> offloaded;
};

class OffloadedUnitsTest : public testing::TestWithParam<Case> {};

TEST_P(OffloadedUnitsTest, Selects) {
  EXPECT_EQ(OffloadedUnits(GetParam().offload, GetParam().elements), GetParam().offloaded);
}

INSTANTIATE_TEST_SUITE_P(
    Table, OffloadedUnitsTest,
    testing::Values(
        Case{"device", {Tier::kDevice, 1}, {4, 4}, {false, false}},
        Case{"all", {Tier::kHost, 1}, {40, 10, 10, 1}, {true, true, true, true}},
        Case{"half_is_reached", {Tier::kNvme, 0.5}, {10, 10, 10, 10}, {false, false, true, true}},
        Case{"at_least", {Tier::kNvme, 0.51}, {10, 10, 10, 10}, {false, true, true, true}},
        Case{"a_little_is_one_unit", {Tier::kHost, 1e-9}, {10, 10, 3}, {false, false, true}},
        Case{"no_units", {Tier::kHost, 1}, {}, {}}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// So that gradients and parameters, whose fraction is at most the optimizer's, follow it.
TEST(OffloadedUnitsTest, AreNested) {
  const std::vector<int64_t> elements = {38, 7, 7, 7, 7, 7, 2};
  for (int less = 1; less <= 100; ++less) {
    const std::vector<bool> few = OffloadedUnits({Tier::kHost, less / 100.0}, elements);
    for (int more = less; more <= 100; ++more) {
      const std::vector<bool> many = OffloadedUnits({Tier::kHost, more / 100.0}, elements);
      for (size_t i = 0; i < few.size(); ++i) EXPECT_LE(few[i], many[i]) << less << " " << more;
    }
  }
}

TEST(StatePieceElementsTest, FillsABuffer) {
  EXPECT_EQ(StatePieceElements(4 << 20), 349504);  // 3 * 4 * 349504 is 256 bytes below 4 MiB
  EXPECT_EQ(StatePieceElements(65536) % kUnitAlignmentElements, 0);
  EXPECT_LE(StatePieceElements(65536) * 12, 65536);
}

}  // namespace
}  // namespace tessera::plan
