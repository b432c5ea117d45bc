// Generating with the cache against generating without one, and what is refused.
#include "worker/generation/text_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "worker/generation/generation_model.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kContext = 40;

ModelConfig Config() {
  ModelConfig config;
  config.family = ModelFamily::kLlama;
  config.vocab_size = 67;
  config.context_length = kContext;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  return config;
}

// Fixed values that look random, larger than initial weights so that logits differ.
absl::Status Weights(absl::string_view name, int64_t begin, absl::Span<float> values) {
  const bool norm = absl::string_view(name).find("norm") != absl::string_view::npos;
  uint32_t state = static_cast<uint32_t>(begin) * 2654435761u + static_cast<uint32_t>(name.size());
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f + (norm ? 1 : 0);
  }
  return absl::OkStatus();
}

class TextGenerationTest : public testing::Test {
 protected:
  TextGenerationTest()
      : device_(*CpuDevice::Create("cpu:0", 32 << 20)),
        model_(*GenerationModel::Create(Config(), {}, Weights, *device_)) {}

  absl::StatusOr<TextGenerationOptions> Options(const v1::GenerateRequest& request,
                                                std::vector<int32_t> prompt) const {
    return MakeTextGenerationOptions(request, std::move(prompt), Config());
  }

  std::vector<int32_t> Generate(const TextGenerationOptions& options,
                                v1::FinishReason expected = v1::FINISH_REASON_LENGTH) {
    std::unique_ptr<Generator> generator = *model_->NewGenerator(options.capacity());
    std::vector<int32_t> tokens;
    absl::StatusOr<v1::FinishReason> finished = GenerateText(
        *generator, options, [] { return absl::OkStatus(); },
        [&](int32_t token) {
          tokens.push_back(token);
          return absl::OkStatus();
        });
    EXPECT_TRUE(finished.ok()) << finished.status();
    EXPECT_EQ(finished.value_or(v1::FINISH_REASON_UNSPECIFIED), expected);
    return tokens;
  }

  // Every token from a pass over the whole sequence before it.
  std::vector<int32_t> GenerateWithoutCache(const TextGenerationOptions& options) {
    std::unique_ptr<Generator> generator = *model_->NewGenerator(options.capacity());
    std::vector<int32_t> sequence = options.prompt, tokens;
    for (int64_t i = 0; i < options.max_new_tokens; ++i) {
      generator->Restart();
      tokens.push_back(PickToken(*generator->Append(sequence), options.choice, i));
      sequence.push_back(tokens.back());
    }
    return tokens;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<GenerationModel> model_;
};

TEST_F(TextGenerationTest, TheCacheChangesNoToken) {
  v1::GenerateRequest request;
  request.set_max_new_tokens(25);
  request.set_seed(3);
  for (const double temperature : {0.0, 0.7, 1.5}) {
    request.set_temperature(temperature);
    request.set_top_k(temperature > 1 ? 20 : 0);
    request.set_top_p(temperature > 1 ? 0.9 : 1);
    absl::StatusOr<TextGenerationOptions> options = Options(request, {5, 66, 0, 17});
    ASSERT_TRUE(options.ok()) << options.status();
    const std::vector<int32_t> tokens = Generate(*options);
    EXPECT_THAT(tokens, SizeIs(25));
    EXPECT_EQ(tokens, GenerateWithoutCache(*options)) << temperature;
    EXPECT_EQ(tokens, Generate(*options)) << "the same request gives the same tokens";
  }
}

TEST_F(TextGenerationTest, StopsAfterAStopToken) {
  v1::GenerateRequest request;
  request.set_temperature(0);
  const std::vector<int32_t> whole = Generate(*Options(request, {1}));
  EXPECT_THAT(whole, SizeIs(kContext - 1)) << "as many as the context leaves";
  request.add_stop_tokens(whole[4]);
  const std::vector<int32_t> cut = Generate(*Options(request, {1}), v1::FINISH_REASON_STOP_TOKEN);
  const auto first = std::find(whole.begin(), whole.end(), whole[4]);
  EXPECT_EQ(cut, std::vector<int32_t>(whole.begin(), first + 1));
}

TEST_F(TextGenerationTest, EndsWhenItIsStopped) {
  const TextGenerationOptions options = *Options({}, {1, 2});
  std::unique_ptr<Generator> generator = *model_->NewGenerator(options.capacity());
  int tokens = 0;
  absl::StatusOr<v1::FinishReason> finished = GenerateText(
      *generator, options,
      [&] { return tokens < 3 ? absl::OkStatus() : absl::CancelledError("enough"); },
      [&](int32_t) {
        ++tokens;
        return absl::OkStatus();
      });
  EXPECT_EQ(finished.status(), absl::CancelledError("enough"));
  EXPECT_EQ(tokens, 3);
}

TEST_F(TextGenerationTest, RefusesPromptsThatDoNotFit) {
  EXPECT_THAT(Options({}, {}).status().ToString(),
              HasSubstr("INVALID_ARGUMENT: prompt: must be at least one token"));
  EXPECT_THAT(Options({}, {3, 67}).status().ToString(),
              HasSubstr("prompt[1]: 67: must be 0 .. 66, the model's vocabulary"));
  EXPECT_THAT(Options({}, {-1}).status().ToString(), HasSubstr("prompt[0]: -1: must be 0 .. 66"));
  EXPECT_THAT(Options({}, std::vector<int32_t>(kContext, 1)).status().ToString(),
              HasSubstr("prompt: 40 tokens: must be fewer than 40, the model's context length"));
  v1::GenerateRequest request;
  request.set_max_new_tokens(38);
  EXPECT_THAT(Options(request, {1, 2, 3}).status().ToString(),
              HasSubstr("max_new_tokens: 38: must be at most 37, which a prompt of 3 tokens leaves "
                        "of the context length of 40"));
  request.set_max_new_tokens(37);
  request.add_stop_tokens(67);
  EXPECT_THAT(Options(request, {1, 2, 3}).status().ToString(),
              HasSubstr("stop_tokens: 67: must be 0 .. 66, the model's vocabulary"));
  request.clear_stop_tokens();
  EXPECT_EQ(Options(request, {1, 2, 3})->capacity(), kContext);
}

TEST_F(TextGenerationTest, LeavesWhatIsReserved) {
  const ArenaUsage before = device_->arena().usage();
  const GenerationModelOptions options{DType::kFloat32,
                                       before.capacity_bytes - before.current_bytes - 1000};
  EXPECT_THAT(
      GenerationModel::Create(Config(), options, Weights, *device_).status().ToString(),
      testing::ContainsRegex("RESOURCE_EXHAUSTED: cpu:0: generating needs [0-9]+ bytes more, of"));
  EXPECT_EQ(device_->arena().usage().current_bytes, before.current_bytes) << "nothing is held";
}

TEST_F(TextGenerationTest, SourceErrorsPassThrough) {
  EXPECT_EQ(GenerationModel::Create(
                Config(), {}, [](auto...) { return absl::DataLossError("gone"); }, *device_)
                .status(),
            absl::DataLossError("gone"));
}

}  // namespace
}  // namespace tessera
