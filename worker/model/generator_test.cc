// Generating with the cache against forward passes of the whole sequence.
#include "worker/model/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/fp32_copy.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr int64_t kCapacity = 150;  // more than two pieces of a prompt

ModelConfig Config(ModelFamily family) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = 101;
  config.context_length = kCapacity;
  config.layers = 2;
  config.heads = 4;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  if (family == ModelFamily::kLlama) {
    config.kv_heads = 2;
    config.attention_bias = true;
    config.tie_word_embeddings = false;
  }
  return config;
}

// Whole tensors with fixed random values.
class FixedStore : public ParameterStore {
 public:
  FixedStore(const ModelConfig& config, DType dtype, Device& device, Stream& stream)
      : units_(Units(config)), buffers_(device, dtype) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const UnitSpec& unit : units_) {
      parameters_.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        std::vector<float> values(spec.shape.num_elements());
        for (float& value : values) {
          value = (spec.initializer == Initializer::kOnes ? 1 : 0) + 0.3f * normal(random);
        }
        parameters_.back().push_back(buffers_.New(spec.shape, "parameter"));
        EXPECT_TRUE(CopyInFp32(values, parameters_.back().back(), stream).ok());
      }
    }
  }
  const std::vector<UnitSpec>& units() const override { return units_; }
  absl::StatusOr<absl::Span<const Tensor>> AcquireParameters(int unit, Stream&) override {
    return absl::MakeConstSpan(parameters_[unit]);
  }
  absl::Status ReleaseParameters(int, Stream&) override { return absl::OkStatus(); }
  absl::Status PrefetchParameters(absl::Span<const int>, Stream&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Span<const Tensor>> AcquireGradients(int, Stream&) override {
    return absl::FailedPreconditionError("no gradients");
  }
  absl::Status GradientsReady(int, Stream&) override { return absl::OkStatus(); }

 private:
  const std::vector<UnitSpec> units_;
  std::vector<std::vector<Tensor>> parameters_;
  ActivationBuffers buffers_;
};

struct Rig {
  Rig(ModelFamily family, DType dtype)
      : config(Config(family)),
        device(*CpuDevice::Create("cpu:0", 32 << 20)),
        stream(*device->CreateStream()),
        store(config, dtype, *device, *stream),
        model(config, store),
        generator(*Generator::Create(model, dtype, kCapacity, *device, *stream)) {
    ActivationOptions options;
    options.batch = 1;
    options.time = kCapacity;
    options.dtype = dtype;
    scratch = std::make_unique<TransformerScratch>(*TransformerScratch::Create(
        config, TensorParallelLayout(), true, options, *device, *stream));
    whole = std::make_unique<TransformerActivations>(*TransformerActivations::Create(
        config, TensorParallelLayout(), model.chunk(), options, *scratch, *device));
  }

  // The logits after the last of `tokens`, by one pass over all of them; what follows them in the
  // pass is 0, which no earlier position sees.
  std::vector<float> WithoutCache(std::vector<int32_t> tokens) {
    const int64_t last = static_cast<int64_t>(tokens.size()) - 1;
    tokens.resize(kCapacity, 0);
    EXPECT_TRUE(device->CopyIn(tokens.data(), whole->ids.size_bytes(), whole->ids, *stream).ok());
    EXPECT_TRUE(model.Forward(*whole, *scratch, *stream).ok());
    EXPECT_TRUE(model.ForwardHead(*whole, *scratch, /*backward=*/false, *stream).ok());
    const Tensor flat = scratch->head.logits.Reshape({kCapacity * config.vocab_size});
    std::vector<float> logits(config.vocab_size);
    EXPECT_TRUE(CopyOutFp32(flat.Slice(last * config.vocab_size, config.vocab_size),
                            absl::MakeSpan(logits), *stream)
                    .ok());
    return logits;
  }

  const ModelConfig config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  FixedStore store;
  Transformer model;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<TransformerScratch> scratch;
  std::unique_ptr<TransformerActivations> whole;
};

int32_t Likeliest(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<int32_t> Prompt(int64_t size) {
  std::vector<int32_t> tokens(size);
  for (int64_t i = 0; i < size; ++i) tokens[i] = static_cast<int32_t>((i * i + 7 * i) % 101);
  return tokens;
}

class GeneratorTest : public testing::TestWithParam<ModelFamily> {};

// Products of one row and of many sum in other orders: at most sqrt(K) * 2^-24 relatively for K of
// 40, through two layers; the logits are below 10 in size.
TEST_P(GeneratorTest, GivesTheTokensOfWholePasses) {
  Rig rig(GetParam(), DType::kFloat32);
  for (const int64_t prompt : {1, 2, 64, 65, 130}) {
    rig.generator->Restart();
    std::vector<int32_t> tokens = Prompt(prompt);
    absl::Span<const int32_t> next = tokens;
    for (int i = 0; i < 15; ++i) {
      auto logits = rig.generator->Append(next);
      ASSERT_TRUE(logits.ok()) << logits.status();
      const std::vector<float> expected = rig.WithoutCache(tokens);
      for (size_t v = 0; v < expected.size(); ++v) {
        ASSERT_NEAR((*logits)[v], expected[v], 2e-5) << prompt << " " << i;
      }
      ASSERT_EQ(Likeliest(*logits), Likeliest(expected)) << prompt << " " << i;
      tokens.push_back(Likeliest(*logits));
      next = absl::MakeConstSpan(tokens).last(1);
    }
  }
}

// Each of two layers rounds about ten tensors to bf16, at u = 2^-8 each.
TEST_P(GeneratorTest, SixteenBitLogitsAgree) {
  Rig rig(GetParam(), DType::kBFloat16);
  const std::vector<int32_t> tokens = Prompt(70);
  auto logits = rig.generator->Append(tokens);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const std::vector<float> expected = rig.WithoutCache(tokens);
  double error = 0, norm = 0;
  for (size_t v = 0; v < expected.size(); ++v) {
    error += std::pow((*logits)[v] - expected[v], 2);
    norm += std::pow(expected[v], 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 10 * 0x1p-8);
}

TEST_P(GeneratorTest, RefusesWhatDoesNotFitAndGoesOn) {
  Rig rig(GetParam(), DType::kFloat32);
  EXPECT_THAT(rig.generator->Append({}).status().ToString(),
              HasSubstr("INVALID_ARGUMENT: no tokens: must be at least one"));
  EXPECT_THAT(rig.generator->Append({3, 101}).status().ToString(),
              HasSubstr("token 1: 101: must be 0 .. 100, the model's vocabulary"));
  EXPECT_THAT(rig.generator->Append({-1}).status().ToString(), HasSubstr("token 0: -1: must be"));
  EXPECT_THAT(rig.generator->Append(Prompt(kCapacity + 1)).status().ToString(),
              HasSubstr("151 tokens after 0: must be at most 150 together"));
  EXPECT_EQ(rig.generator->length(), 0);
  ASSERT_TRUE(rig.generator->Append(Prompt(kCapacity)).ok());
  EXPECT_THAT(rig.generator->Append({1}).status().ToString(),
              HasSubstr("1 tokens after 150: must be at most 150 together"));
  EXPECT_THAT(Generator::Create(rig.model, DType::kFloat32, kCapacity + 1, *rig.device, *rig.stream)
                  .status()
                  .ToString(),
              HasSubstr("a sequence of 151 tokens: must be 1 .. 150, the model's context length"));
}

INSTANTIATE_TEST_SUITE_P(Families, GeneratorTest,
                         testing::Values(ModelFamily::kGpt2, ModelFamily::kLlama),
                         [](const auto& info) {
                           return info.param == ModelFamily::kGpt2 ? "Gpt2" : "Llama";
                         });

}  // namespace
}  // namespace tessera
