#include "plan/model_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::plan {
namespace {

constexpr int64_t kBillion = 1'000'000'000;

// Table 1 of the ZeRO paper, GB (1e9 bytes) per device as printed: with zero_stage 1, 2 and 3.
struct TableRow {
  int64_t parameters;
  int64_t devices;
  double printed_gb[3];
  double last_digit[3];  // one unit of the last printed digit
};

const std::vector<TableRow>& Table1() {
  static const auto& rows =
      *new std::vector<TableRow>{{7'500'000'000, 1, {120, 120, 120}, {1, 1, 1}},
                                 {7'500'000'000, 4, {52.5, 41.3, 30}, {0.1, 0.1, 1}},
                                 {7'500'000'000, 16, {35.6, 21.6, 7.5}, {0.1, 0.1, 0.1}},
                                 {7'500'000'000, 64, {31.4, 16.6, 1.88}, {0.1, 0.1, 0.01}},
                                 {7'500'000'000, 256, {30.4, 15.4, 0.47}, {0.1, 0.1, 0.01}},
                                 {7'500'000'000, 1024, {30.1, 15.1, 0.12}, {0.1, 0.1, 0.01}},
                                 {128 * kBillion, 1, {2048, 2048, 2048}, {1, 1, 1}},
                                 {128 * kBillion, 4, {896, 704, 512}, {1, 1, 1}},
                                 {128 * kBillion, 16, {608, 368, 128}, {1, 1, 1}},
                                 {128 * kBillion, 64, {536, 284, 32}, {1, 1, 1}},
                                 {128 * kBillion, 256, {518, 263, 8}, {1, 1, 1}},
                                 {128 * kBillion, 1024, {513, 257, 2}, {1, 1, 1}},
                                 {1000 * kBillion, 1, {16000, 16000, 16000}, {1, 1, 1}},
                                 {1000 * kBillion, 4, {7000, 5500, 4000}, {1, 1, 1}},
                                 {1000 * kBillion, 16, {4750, 2875, 1000}, {1, 1, 1}},
                                 {1000 * kBillion, 64, {4187, 2218, 250}, {1, 1, 1}},
                                 {1000 * kBillion, 256, {4046, 2054, 62.5}, {1, 1, 0.1}},
                                 {1000 * kBillion, 1024, {4011, 2013, 15.6}, {1, 1, 0.1}}};
  return rows;
}

// Bytes a parameter by the paper's formulas, K = 12.
double FormulaBytes(int zero_stage, double d) {
  const double formulas[] = {16, 4 + 12 / d, 2 + 14 / d, 16 / d};
  return formulas[zero_stage];
}

TEST(ModelStateTest, IsTable1OfTheZeroPaper) {
  for (const TableRow& row : Table1()) {
    for (int stage = 1; stage <= 3; ++stage) {
      SCOPED_TRACE(
          absl::StrCat(row.parameters, " parameters, ", row.devices, " devices, stage ", stage));
      const auto bytes = static_cast<double>(
          ModelStateOf(row.parameters, kMixedPrecisionBytes, stage, row.devices).total_bytes());
      const double formula = FormulaBytes(stage, static_cast<double>(row.devices)) *
                             static_cast<double>(row.parameters);
      EXPECT_NEAR(bytes, formula, 1e-6 * formula);
      // Some are printed truncated, some rounded: less than one unit of the last digit away.
      EXPECT_LT(std::abs(bytes / 1e9 - row.printed_gb[stage - 1]), row.last_digit[stage - 1]);
      const bool is_rounded =
          std::abs(bytes / 1e9 - row.printed_gb[stage - 1]) <= row.last_digit[stage - 1] / 2 + 1e-9;
      const bool is_truncated = bytes / 1e9 >= row.printed_gb[stage - 1];
      EXPECT_TRUE(is_rounded || is_truncated) << bytes / 1e9;
    }
  }
}

TEST(ModelStateTest, Of1500MillionParameters) {
  const ModelState state = ModelStateOf(1'500'000'000, kMixedPrecisionBytes, 0, 1);
  EXPECT_EQ(state.parameters_bytes, 3 * kBillion);
  EXPECT_EQ(state.total_bytes(), 24 * kBillion);
}

TEST(ModelStateTest, EveryStageSharesOneKindMore) {
  struct Case {
    int zero_stage;
    int64_t parameters_bytes, gradients_bytes, optimizer_bytes;
  };
  // Of ten parameters on four devices a share has three.
  for (const Case& expected :
       {Case{0, 40, 40, 80}, Case{1, 40, 40, 24}, Case{2, 40, 12, 24}, Case{3, 12, 12, 24}}) {
    const ModelState state = ModelStateOf(10, kFp32Bytes, expected.zero_stage, 4);
    EXPECT_EQ(state.parameters_bytes, expected.parameters_bytes) << expected.zero_stage;
    EXPECT_EQ(state.gradients_bytes, expected.gradients_bytes) << expected.zero_stage;
    EXPECT_EQ(state.optimizer_bytes, expected.optimizer_bytes) << expected.zero_stage;
  }
}

TEST(ModelStateTest, StagesOneAndTwoCostNoTrafficAndThreeHalfAsMuchAgain) {
  for (int stage = 0; stage <= 2; ++stage) {
    EXPECT_EQ(ModelTrafficElements(1000, stage, 4), 1500) << stage;
    EXPECT_EQ(ModelTrafficElements(1000, stage, 1), 0) << stage;
  }
  EXPECT_EQ(ModelTrafficElements(1000, 3, 4), 2250);
  EXPECT_EQ(ModelTrafficElements(kMaxModelParameters, 3, 4), kMaxModelParameters / 4 * 9);
}

TEST(ModelStateTest, FewestDevices) {
  struct Case {
    const char* name;
    int zero_stage;
    int64_t memory_gb;
    std::optional<int64_t> devices;
  };
  // 7.5B: 30 GB of weights and gradients, 90 GB of optimizer state.
  for (const Case& expected : {Case{"whole", 0, 120, 1}, Case{"one byte too many", 0, 119, {}},
                               Case{"optimizer over 30", 1, 33, 30}, Case{"no room", 1, 30, {}},
                               Case{"over 7", 2, 32, 7}, Case{"no room for weights", 2, 15, {}},
                               Case{"over 4", 3, 32, 4}, Case{"over 120", 3, 1, 120}}) {
    EXPECT_EQ(FewestDevices(7'500'000'000, kMixedPrecisionBytes, expected.zero_stage,
                            expected.memory_gb * kBillion),
              expected.devices)
        << expected.name;
  }
}

TEST(ModelStateTest, FewestDevicesFitAndOneFewerDoNot) {
  for (const int64_t parameters : {int64_t{1}, int64_t{999}, int64_t{1'000'003}}) {
    for (int stage = 1; stage <= 3; ++stage) {
      for (const int64_t memory : {int64_t{16}, int64_t{3000}, int64_t{5'000'000}}) {
        const std::optional<int64_t> devices =
            FewestDevices(parameters, kMixedPrecisionBytes, stage, memory);
        auto needs = [&](int64_t d) {
          return ModelStateOf(parameters, kMixedPrecisionBytes, stage, d).total_bytes();
        };
        if (!devices.has_value()) {
          EXPECT_GT(needs(parameters), memory);
          continue;
        }
        EXPECT_LE(needs(*devices), memory) << parameters << " " << stage << " " << memory;
        if (*devices > 1) {
          EXPECT_GT(needs(*devices - 1), memory) << parameters << " " << stage << " " << memory;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::plan
