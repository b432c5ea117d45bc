#include "worker/trainer/training_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace tessera {
namespace {

v1::TrainingJobSpec Spec() {
  v1::TrainingJobSpec spec;
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_GPT2);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_model()->set_context_length(128);
  spec.mutable_model()->set_layers(2);
  spec.mutable_model()->set_heads(4);
  spec.mutable_model()->set_hidden_size(64);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(128);
  spec.mutable_learning_rate()->set_peak(1e-3);
  spec.mutable_batch()->set_global_batch_size(8);
  spec.set_steps(10);
  return spec;
}

TEST(TrainingConfig, DefaultsAreThoseOfTheSpec) {
  auto config = MakeTrainingConfig(Spec(), {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.intermediate_size, 256);
  EXPECT_EQ(config->model.norm_epsilon, 1e-5f);
  EXPECT_EQ(config->model.initializer_range, 0.02);
  EXPECT_EQ(config->optimizer.beta1, 0.9);
  EXPECT_EQ(config->optimizer.beta2, 0.95);
  EXPECT_EQ(config->optimizer.epsilon, 1e-8);
  EXPECT_EQ(config->optimizer.weight_decay, 0.1);
  EXPECT_EQ(config->optimizer.clip_norm, 1);
  EXPECT_FALSE(config->optimizer.clip_before_reduce);
  EXPECT_DOUBLE_EQ(config->learning_rate.final, 1e-4);
  EXPECT_TRUE(config->learning_rate.cosine);
  EXPECT_EQ(config->micro_batches, 1);
  EXPECT_EQ(config->mesh.dp, 1);
  EXPECT_EQ(config->evaluate_every_steps, 0);
  EXPECT_FALSE(config->sample.has_value());
}

TEST(TrainingConfig, LlamaHasItsOwnDefaults) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_LLAMA);
  spec.mutable_model()->set_intermediate_size(100);
  spec.mutable_model()->mutable_rope_scaling()->set_factor(8);
  spec.mutable_model()->mutable_rope_scaling()->set_original_context_length(64);
  const ModelConfig config = MakeModelConfig(spec.model());
  EXPECT_EQ(config.family, ModelFamily::kLlama);
  EXPECT_EQ(config.norm_epsilon, 1e-6f);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.num_kv_heads(), config.heads);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.rope_scaling, (RopeScaling{8, 1, 4, 64}));
}

TEST(TrainingConfig, PrecisionLossScaleAndRecompute) {
  v1::TrainingJobSpec spec = Spec();
  auto config = MakeTrainingConfig(spec, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->dtype, DType::kFloat32);
  EXPECT_FALSE(config->loss_scale.has_value());
  EXPECT_EQ(config->recompute.of(0), Recompute::kNone);
  spec.set_precision(v1::PRECISION_FP16);
  spec.set_gradient_precision(v1::PRECISION_FP32);
  spec.mutable_loss_scale()->set_growth_interval(7);
  spec.set_recompute(v1::RECOMPUTE_FULL);
  spec.mutable_recompute_layers()->set_first(1);
  spec.mutable_recompute_layers()->set_count(1);
  config = MakeTrainingConfig(spec, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->dtype, DType::kFloat16);
  EXPECT_EQ(config->gradient_dtype, DType::kFloat32);
  EXPECT_EQ(config->loss_scale->initial, 65536);
  EXPECT_EQ(config->loss_scale->growth_interval, 7);
  EXPECT_EQ(config->recompute.of(0), Recompute::kNone);
  EXPECT_EQ(config->recompute.of(1), Recompute::kFull);
  EXPECT_EQ(config->recompute.of(2), Recompute::kNone);
}

struct Refusal {
  const char* name;
  absl::StatusCode code;
  const char* prefix;
  std::function<void(v1::TrainingJobSpec&)> edit;
};

class TrainingConfigRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(TrainingConfigRefuses, WithTheFieldsPath) {
  v1::TrainingJobSpec spec = Spec();
  GetParam().edit(spec);
  const absl::Status status = MakeTrainingConfig(spec, {}).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_EQ(std::string(status.message()).rfind(GetParam().prefix, 0), 0u) << status;
}

constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    Cases, TrainingConfigRefuses,
    testing::Values(
        Refusal{"Dropout", kUnimplemented,
                "spec.model.dropout: 0.1: ", [](auto& s) { s.mutable_model()->set_dropout(0.1); }},
        Refusal{"Stage4", kInvalid, "spec.zero_stage: 4: 0 .. 3",
                [](auto& s) { s.set_zero_stage(4); }},
        Refusal{"TpDoesNotDivideHeads", kInvalid,
                "spec.model.heads: ", [](auto& s) { s.mutable_mesh()->set_tp(16); }},
        Refusal{"MoreStagesThanLayers", kInvalid,
                "spec.model.layers: ", [](auto& s) { s.mutable_mesh()->set_pp(64); }},
        Refusal{"ClipBeforeReduceWithCp", kUnimplemented, "spec.optimizer.gradient_clipping: ",
                [](auto& s) {
                  s.mutable_mesh()->set_cp(2);
                  s.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
                }},
        Refusal{"Heads", kInvalid,
                "spec.model.heads: 3: ", [](auto& s) { s.mutable_model()->set_heads(3); }},
        Refusal{"NoHeads", kInvalid,
                "spec.model.heads: 0: ", [](auto& s) { s.mutable_model()->set_heads(0); }},
        Refusal{"KvHeads", kInvalid,
                "spec.model.kv_heads: 3: ", [](auto& s) { s.mutable_model()->set_kv_heads(3); }},
        Refusal{"OddHead", kInvalid,
                "spec.model.head_size: 7: ", [](auto& s) { s.mutable_model()->set_head_size(7); }},
        Refusal{"LongSequence", kInvalid, "spec.data.sequence_length: 129: ",
                [](auto& s) { s.mutable_data()->set_sequence_length(129); }},
        Refusal{"Batch", kInvalid, "spec.batch.global_batch_size: 8: ",
                [](auto& s) { s.mutable_batch()->set_micro_batches(3); }},
        Refusal{"NoSteps", kInvalid, "spec.steps: 0: ", [](auto& s) { s.set_steps(0); }},
        Refusal{"SampleOfIds", kInvalid, "spec.sample: ",
                [](auto& s) {
                  s.mutable_data()->set_format(v1::DATA_FORMAT_LLMC);
                  s.mutable_sample()->set_prompt("a");
                }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
