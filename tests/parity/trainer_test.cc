// The trainer's contract: what it reports, refuses and gives back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/status_macros.h"
#include "tests/parity/parity_harness.h"
#include "worker/checkpoint/weight_reader.h"

namespace tessera {
namespace {

JobData Data(int64_t windows = 60) {
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(37 * windows + 1, 257, 3));
  data.validation = std::make_unique<MemoryTokenSource>(SyntheticTokens(37 * 7 + 1, 257, 4));
  return data;
}

TEST(Trainer, LearnsAndReportsEveryStep) {
  v1::TrainingJobSpec spec = SmallSpec();
  spec.set_steps(60);
  spec.mutable_evaluation()->set_every_steps(25);
  auto run = TrainInProcess(spec, Data());
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->steps.size(), 61u);
  for (int64_t i = 0; i <= 60; ++i) {
    const StepResult& step = run->steps[i];
    EXPECT_EQ(step.step, i);
    EXPECT_EQ(step.validation_loss.has_value(), i == 0 || i == 25 || i == 50 || i == 60);
    if (i == 0) continue;
    EXPECT_EQ(step.tokens, 12 * 37);
    EXPECT_GT(step.seconds, 0);
    EXPECT_GT(step.gradient_norm, 0);
  }
  EXPECT_DOUBLE_EQ(run->steps[1].learning_rate, 1e-3);
  EXPECT_DOUBLE_EQ(run->steps[60].learning_rate, 3e-4);
  EXPECT_NEAR(run->steps[1].loss, std::log(257.0), 0.1);
  EXPECT_LT(*run->steps[60].validation_loss, *run->steps[0].validation_loss - 0.4);
}

TEST(Trainer, AStepWithoutTargetsIsAnError) {
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(std::vector<int32_t>(1000, 7));
  v1::TrainingJobSpec spec = SmallSpec();
  spec.mutable_data()->add_ignore_target_ids(7);
  const absl::Status status = TrainInProcess(spec, data).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("step 1"), std::string::npos) << status;
}

TEST(Trainer, ALossThatIsNotFiniteIsAnErrorBeforeTheWeightsChange) {
  ParityOptions options;
  options.prepare = [](Trainer& trainer) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> values, trainer.ReadParameter("ln_f.weight"));
    values[0] = std::nanf("");
    return trainer.WriteParameter("ln_f.weight", values);
  };
  const absl::Status status = TrainInProcess(SmallSpec(), Data(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("step 1: loss is nan"), std::string::npos) << status;
}

TEST(Trainer, ReadsAndWritesParametersByName) {
  ParityOptions options;
  options.prepare = [](Trainer& trainer) -> absl::Status {
    const std::vector<std::string> names = trainer.parameter_names();
    EXPECT_EQ(names.size(), 2u + 2 * 12 + 2);
    EXPECT_EQ(names.front(), "wte.weight");
    EXPECT_EQ(names[4], "h.0.attn.c_attn.weight");
    EXPECT_EQ(names.back(), "ln_f.bias");
    EXPECT_EQ(trainer.ReadParameter("lm_head.weight").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(trainer.WriteParameter("ln_f.bias", {1, 2}).code(),
              absl::StatusCode::kInvalidArgument);
    std::vector<float> values(24, 0.5f);
    TESSERA_RETURN_IF_ERROR(trainer.WriteParameter("ln_f.bias", values));
    EXPECT_EQ(*trainer.ReadParameter("ln_f.bias"), values);
    const std::vector<ShardInfo> shards = trainer.shards();
    EXPECT_EQ(shards.size(), 3u * 4);
    EXPECT_EQ(shards[3].unit, "layer.0");
    EXPECT_EQ(shards[2].kind, "optimizer");
    EXPECT_EQ(shards[2].size_bytes, 8 * shards[2].size_elements);
    return absl::OkStatus();
  };
  const absl::Status status = TrainInProcess(SmallSpec(), Data(), options).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Trainer, SamplesTheSameTextFromTheSameSeed) {
  v1::TrainingJobSpec spec = SmallSpec();
  spec.set_steps(3);
  spec.mutable_sample()->set_prompt(std::string(100, 'x'));  // longer than the window
  spec.mutable_sample()->set_max_new_tokens(20);
  spec.mutable_sample()->set_seed(1);
  auto first = TrainInProcess(spec, Data());
  spec.mutable_sample()->set_seed(2);
  auto second = TrainInProcess(spec, Data());
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->sample.size(), 20u);
  EXPECT_NE(first->sample, second->sample);
}

TEST(Trainer, RefusesShortDataAndSmallDevices) {
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(37, 257, 3));
  const absl::Status status = TrainInProcess(SmallSpec(), data).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).rfind("spec.data.path: 37 tokens", 0), 0u) << status;
  v1::TrainingJobSpec large = SmallSpec();
  large.mutable_model()->set_hidden_size(3000);
  EXPECT_EQ(TrainInProcess(large, Data()).status().code(), absl::StatusCode::kResourceExhausted);
}

v1::TrainingJobSpec Fp16Spec(double initial_scale) {
  v1::TrainingJobSpec spec = SmallSpec();
  spec.set_precision(v1::PRECISION_FP16);
  spec.mutable_mesh()->set_dp(2);
  spec.mutable_loss_scale()->set_initial(initial_scale);
  spec.mutable_loss_scale()->set_hysteresis(1);
  return spec;
}

// The scale halves at every overflow, until the gradient fits; all ranks agree (TrainInProcess
// checks it).
TEST(Trainer, Fp16SkipsStepsThatOverflow) {
  v1::TrainingJobSpec spec = Fp16Spec(0x1p30);
  spec.set_steps(40);
  auto run = TrainInProcess(spec, Data());
  ASSERT_TRUE(run.ok()) << run.status();
  double scale = 0x1p30;
  int64_t skipped = 0;
  for (const StepResult& step : run->steps) {
    EXPECT_EQ(*step.loss_scale, scale);
    EXPECT_TRUE(std::isfinite(step.loss));
    if (!std::isfinite(step.gradient_norm)) {
      ++skipped;
      scale /= 2;
    }
    EXPECT_EQ(step.skipped_steps, skipped);
  }
  EXPECT_EQ(run->steps.front().skipped_steps, 1);
  EXPECT_LT(skipped, 30);
  // The steps from a scale that fits on have learned.
  EXPECT_LT(run->steps.back().loss, run->steps.front().loss - 0.1);
}

TEST(Trainer, Fp16FailsWhereNoScaleHelps) {
  v1::TrainingJobSpec spec = Fp16Spec(0x1p30);
  spec.mutable_loss_scale()->set_minimum(0x1p30);
  const absl::Status status = TrainInProcess(spec, Data()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("overflows fp16 at the smallest loss scale"),
            std::string::npos)
      << status;
}

TEST(Trainer, HoldsSixteenBitParametersAndAnFp32Master) {
  for (const bool fp32_gradients : {false, true}) {
    v1::TrainingJobSpec spec = SmallSpec();
    spec.set_precision(v1::PRECISION_BF16);
    if (fp32_gradients) spec.set_gradient_precision(v1::PRECISION_FP32);
    ParityOptions options;
    options.prepare = [&](Trainer& trainer) -> absl::Status {
      for (const ShardInfo& shard : trainer.shards()) {
        const int64_t bytes = shard.kind == "optimizer"                     ? 12
                              : shard.kind == "gradients" && fp32_gradients ? 4
                                                                            : 2;
        EXPECT_EQ(shard.size_bytes, bytes * shard.size_elements) << shard.kind;
      }
      // What bf16 cannot hold, the master does.
      const std::vector<float> values(24, 1 + 0x1p-20f);
      TESSERA_RETURN_IF_ERROR(trainer.WriteParameter("ln_f.weight", values));
      EXPECT_EQ(*trainer.ReadParameter("ln_f.weight"), values);
      return absl::OkStatus();
    };
    const absl::Status status = TrainInProcess(spec, Data(), options).status();
    EXPECT_TRUE(status.ok()) << status;
  }
}

v1::TrainingJobSpec LlamaSpec() {
  v1::TrainingJobSpec spec = SmallSpec();
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_LLAMA);
  model.set_heads(4);
  model.set_kv_heads(2);
  model.set_intermediate_size(50);
  return spec;
}

// Training goes on from exported weights with the same loss as it would have had.
TEST(Trainer, StartsFromWhatItExported) {
  for (v1::TrainingJobSpec spec : {SmallSpec(), LlamaSpec()}) {
    const std::string folder =
        testing::TempDir() + "/export-" + v1::ModelFamily_Name(spec.model().family());
    spec.mutable_export_()->set_path("unused");
    ParityOptions options;
    options.finish = [&](Trainer& trainer) { return trainer.Export(folder); };
    const JobData data = Data();
    auto first = TrainInProcess(spec, data, options);
    ASSERT_TRUE(first.ok()) << first.status();
    auto weights = OpenWeights(folder);
    ASSERT_TRUE(weights.ok()) << weights.status();
    ParityOptions from;
    from.weights = weights->get();
    from.prepare = [&](Trainer& trainer) -> absl::Status {
      for (const auto& [name, values] : first->parameters) {
        EXPECT_EQ(*trainer.ReadParameter(name), values) << name;
      }
      return absl::OkStatus();
    };
    auto second = TrainInProcess(spec, data, from);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_LT(second->steps[0].loss, first->steps[0].loss);
  }
}

}  // namespace
}  // namespace tessera
