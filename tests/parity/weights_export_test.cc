// Exported weights, read by a reader that shares nothing with ours: Python's struct and json, and
// torch.frombuffer. What it finds is compared bit by bit with what was exported.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/checkpoint/weight_writer.h"
#include "worker/checkpoint/weights_testing.h"

namespace tessera {
namespace {

struct Case {
  const char* name;
  HfConfig config;
  HfWriteOptions options;
  const char* dtype;
};

const Case kCases[] = {
    {"Gpt2Float32", SmallGpt2(), {}, "F32"},
    {"Gpt2Bfloat16Shards", SmallGpt2(), {DType::kBFloat16, 3000}, "BF16"},
    {"LlamaFloat16Shards", SmallLlama(), {DType::kFloat16, 3000}, "F16"},
    {"LlamaFloat32", SmallLlama(), {}, "F32"},
    {"Qwen2Bfloat16", SmallQwen2(), {DType::kBFloat16}, "BF16"},
};

class WeightsExport : public testing::TestWithParam<Case> {
 protected:
  // One Python process for all cases: loading torch takes longer than the rest.
  static void SetUpTestSuite() {
    std::string command = "/usr/bin/python3 -B tests/parity/read_safetensors.py";
    for (const Case& c : kCases) {
      folders_[c.name] = FreshFolder();
      const absl::Status status =
          WriteHfFolder(folders_[c.name], c.config, c.options, MadeUpSource());
      ASSERT_TRUE(status.ok()) << c.name << ": " << status;
      absl::StrAppend(&command, " ", folders_[c.name]);
    }
    ASSERT_EQ(std::system(command.c_str()), 0) << "needs Debian's python3-torch";
  }
  static inline std::map<std::string, std::string> folders_;
};

TEST_P(WeightsExport, TorchReadsTheSame) {
  const Case& c = GetParam();
  std::map<std::string, ParameterSpec> by_tensor;
  for (const ParameterSpec& parameter : ParametersOf(c.config.model)) {
    by_tensor[HfTensorName(c.config.model.family, parameter.name)] = parameter;
  }
  std::string shapes;
  std::vector<float> expected;
  for (const auto& [tensor, parameter] : by_tensor) {
    absl::StrAppend(&shapes, tensor, " ", c.dtype, " ",
                    absl::StrJoin(ShapeDims(parameter.shape), " "), "\n");
    for (int64_t i = 0; i < parameter.shape.num_elements(); ++i) {
      expected.push_back(MadeUpValue(parameter.name, i));
    }
  }
  EXPECT_EQ(ReadFile(folders_[c.name] + "/shapes.txt"), shapes);
  const std::string values = ReadFile(folders_[c.name] + "/values.f32");
  ASSERT_EQ(values.size(), expected.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, WeightsExport, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
