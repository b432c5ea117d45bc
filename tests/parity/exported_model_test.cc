// A trained model's export, opened by others: the validation loss that PyTorch computes from the
// directory alone, in fp64, is the one that training reported.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/parity/parity_harness.h"
#include "worker/checkpoint/weights_testing.h"

namespace tessera {
namespace {

constexpr int kTime = 37, kWindows = 7;

struct Case {
  const char* name;
  bool llama = false;
  bool tied = true;
  bool attention_bias = false;
  bool rope_scaling = false;
};

const Case kCases[] = {
    {.name = "Gpt2"},
    {.name = "Gpt2Untied", .tied = false},
    {.name = "Llama", .llama = true, .tied = false},
    {.name = "LlamaTiedScaled", .llama = true, .rope_scaling = true},
    {.name = "Qwen2", .llama = true, .attention_bias = true},
};

v1::TrainingJobSpec MakeSpec(const Case& c) {
  v1::TrainingJobSpec spec = SmallSpec();
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_tie_word_embeddings(c.tied);
  // Larger than a fresh model's, so that attention and positions matter to the loss.
  model.set_initializer_range(0.2);
  if (c.llama) {
    model.set_family(v1::MODEL_FAMILY_LLAMA);
    model.set_heads(4);
    model.set_kv_heads(2);
    model.set_intermediate_size(50);
    model.set_attention_bias(c.attention_bias);
    model.set_rope_theta(500);
  }
  if (c.rope_scaling) {
    model.mutable_rope_scaling()->set_factor(8);
    model.mutable_rope_scaling()->set_original_context_length(16);
  }
  spec.mutable_evaluation()->set_every_steps(5);
  spec.mutable_export_()->set_path("unused");
  spec.set_steps(5);
  return spec;
}

class ExportedModel : public testing::TestWithParam<Case> {
 protected:
  // Trains and exports; then one Python process for all cases.
  static void SetUpTestSuite() {
    std::string command = "/usr/bin/python3 -B tests/parity/exported_model.py";
    for (const Case& c : kCases) {
      const std::string folder = FreshFolder() + "/export";
      folders_[c.name] = folder;
      const std::vector<int32_t> validation = SyntheticTokens(kTime * kWindows + 1, 257, 4);
      JobData data;
      data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(kTime * 60 + 1, 257, 3));
      data.validation = std::make_unique<MemoryTokenSource>(validation);
      ParityOptions options;
      options.finish = [&](Trainer& trainer) { return trainer.Export(folder); };
      auto run = TrainInProcess(MakeSpec(c), data, options);
      ASSERT_TRUE(run.ok()) << c.name << ": " << run.status();
      losses_[c.name] = *run->steps.back().validation_loss;
      std::ofstream ids(folder + "/ids.i32", std::ios::binary);
      for (int window = 0; window < kWindows; ++window) {
        ids.write(reinterpret_cast<const char*>(validation.data() + window * kTime),
                  (kTime + 1) * sizeof(int32_t));
      }
      std::ofstream(folder + "/sequence_length") << kTime;
      absl::StrAppend(&command, " ", folder);
    }
    ASSERT_EQ(std::system(command.c_str()), 0) << "needs Debian's python3-torch";
  }
  static inline std::map<std::string, std::string> folders_;
  static inline std::map<std::string, double> losses_;
};

// Losses of 259 targets in fp32, of which each has passed some 20 sums of up to 100 terms.
TEST_P(ExportedModel, GivesTheLossThatTrainingReported) {
  const std::string bytes = ReadFile(folders_.at(GetParam().name) + "/losses.f64");
  ASSERT_EQ(bytes.size(), sizeof(double));
  double theirs;
  std::memcpy(&theirs, bytes.data(), sizeof(double));
  const double ours = losses_.at(GetParam().name);
  EXPECT_GT(ours, 1);
  EXPECT_NEAR(ours, theirs, 1e-6 * theirs);
}

INSTANTIATE_TEST_SUITE_P(Cases, ExportedModel, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
