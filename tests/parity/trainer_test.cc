// The trainer's contract: what it reports, refuses and gives back.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/status_macros.h"
#include "tests/parity/parity_harness.h"

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

}  // namespace
}  // namespace tessera
