#include "cli/model_state.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace tessera {
namespace {

ModelStateOptions Options(const char* parameters, int64_t dp = 1, const char* device_memory = "",
                          const char* precision = "bf16") {
  return {parameters, dp, device_memory, precision};
}

TEST(ModelStateTest, CountsHaveSuffixes) {
  EXPECT_EQ(*ParseCount("7.5B", "--p"), 7'500'000'000);
  EXPECT_EQ(*ParseCount("124M", "--p"), 124'000'000);
  EXPECT_EQ(*ParseCount("1T", "--p"), 1'000'000'000'000);
  EXPECT_EQ(*ParseCount("0.5K", "--p"), 500);
  EXPECT_EQ(*ParseCount("1557611200", "--p"), 1'557'611'200);
}

TEST(ModelStateTest, BadInputNamesFlagValueAndRule) {
  struct Case {
    ModelStateOptions options;
    const char* message;
  };
  const Case cases[] = {
      {Options("many"),
       "--parameters: \"many\": must be a number such as 350M, 7.5B or 1T, from 1 to 1e17"},
      {Options("0"),
       "--parameters: \"0\": must be a number such as 350M, 7.5B or 1T, from 1 to 1e17"},
      {Options("nan"),
       "--parameters: \"nan\": must be a number such as 350M, 7.5B or 1T, from 1 to 1e17"},
      {Options("1000001T"),
       "--parameters: \"1000001T\": must be a number such as 350M, 7.5B or 1T, from 1 to 1e17"},
      {Options("7B", 0), "--dp: 0: must be 1 .. 2147483647"},
      {Options("7B", 1, "32G"),
       "--device-memory: \"32G\": must be a positive number of bytes such as 512MiB or 1.5GiB"},
      {Options("7B", 1, "", "int8"), "--precision: \"int8\": must be bf16, fp16 or fp32"}};
  for (const Case& bad : cases) {
    const absl::Status status = PlanModelState(bad.options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_EQ(status.message(), bad.message);
  }
}

TEST(ModelStateTest, TellsWhatFits) {
  const v1::ModelStatePlan plan = *PlanModelState(Options("7.5B", 64, "32GB"));
  ASSERT_EQ(plan.stages_size(), 4);
  EXPECT_EQ(plan.stages(0).total_bytes(), 120'000'000'000);
  EXPECT_FALSE(plan.stages(0).fits());
  EXPECT_FALSE(plan.stages(0).has_fewest_devices());
  EXPECT_EQ(plan.stages(1).total_bytes(), 31'406'250'000);
  EXPECT_TRUE(plan.stages(1).fits());
  EXPECT_EQ(plan.stages(2).fewest_devices(), 7);
  EXPECT_EQ(plan.stages(3).total_bytes(), 1'875'000'000);
  EXPECT_EQ(plan.stages(3).traffic_elements(), 22'148'437'500);
}

TEST(ModelStateTest, TableIsThatOfTheZeroPaper) {
  const std::string table = ModelStateTable(*PlanModelState(Options("7.5B", 64, "32GB")));
  EXPECT_EQ(table,
            "Model    7.5B parameters (7500000000), bf16: 2 + 2 + 12 bytes each of weights, "
            "gradients and optimizer\n"
            "Devices  64 of 32 GB (32000000000 bytes)\n"
            "\n"
            "Model state of a device, without activations and buffers\n"
            "ZERO STAGE  PARAMETERS  GRADIENTS  OPTIMIZER  TOTAL    SENT A STEP      FITS  FEWEST "
            "DEVICES\n"
            "0           15 GB       15 GB      90 GB      120 GB   14.77B elements  no    -\n"
            "1           15 GB       15 GB      1.41 GB    31.4 GB  14.77B elements  yes   46\n"
            "2           15 GB       234 MB     1.41 GB    16.6 GB  14.77B elements  yes   7\n"
            "3           234 MB      234 MB     1.41 GB    1.88 GB  22.15B elements  yes   4\n");
  const std::string without = ModelStateTable(*PlanModelState(Options("1K")));
  EXPECT_EQ(without.find("FITS"), std::string::npos) << without;
}

}  // namespace
}  // namespace tessera
