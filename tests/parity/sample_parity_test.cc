// Text that the ranks of a mesh generate together is that of one rank, and the cache of keys and
// values is spread over cp.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cpu/cpu_device.h"
#include "tests/parity/parity_harness.h"
#include "worker/model/kv_cache.h"

namespace tessera {
namespace {

constexpr int kTime = 192;  // several blocks of the cache

struct Layout {
  std::string name;
  int dp = 1, cp = 1, pp = 1, tp = 1;
  bool sequence_parallel = false;
  int zero_stage = 0;
};

v1::TrainingJobSpec Spec(const Layout& layout, v1::ModelFamily family) {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(family);
  model.set_vocab_size(99);
  model.set_context_length(kTime);
  model.set_layers(2);
  model.set_heads(4);
  model.set_hidden_size(32);
  model.set_intermediate_size(64);
  model.set_initializer_range(0.2);  // logits far apart: no token hangs on a rounding
  if (family == v1::MODEL_FAMILY_LLAMA) model.set_kv_heads(2);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(kTime);
  spec.mutable_learning_rate()->set_peak(1e-3);
  spec.mutable_batch()->set_global_batch_size(2);
  spec.set_steps(1);
  spec.mutable_mesh()->set_dp(layout.dp);
  spec.mutable_mesh()->set_cp(layout.cp);
  spec.mutable_mesh()->set_pp(layout.pp);
  spec.mutable_mesh()->set_tp(layout.tp);
  spec.set_sequence_parallel(layout.sequence_parallel);
  spec.set_zero_stage(layout.zero_stage);
  spec.mutable_sample()->set_prompt(std::string(101, 'a') + "b");
  spec.mutable_sample()->set_max_new_tokens(40);
  spec.mutable_sample()->set_temperature(0);
  return spec;
}

class SampleParity : public testing::TestWithParam<Layout> {};

TEST_P(SampleParity, SameTextAsOneRank) {
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(kTime * 10 + 1, 99, 1));
  for (const v1::ModelFamily family : {v1::MODEL_FAMILY_GPT2, v1::MODEL_FAMILY_LLAMA}) {
    const auto split = TrainInProcess(Spec(GetParam(), family), data);
    ASSERT_TRUE(split.ok()) << split.status();
    const auto one = TrainInProcess(Spec({.name = ""}, family), data);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->sample.size(), 40u);
    EXPECT_EQ(split->sample, one->sample);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, SampleParity,
    testing::Values(Layout{.name = "Tp2", .tp = 2},
                    Layout{.name = "Tp2Sp", .tp = 2, .sequence_parallel = true},
                    Layout{.name = "Pp2", .pp = 2}, Layout{.name = "Cp2", .cp = 2},
                    Layout{.name = "Cp4", .cp = 4},
                    Layout{
                        .name = "Cp2Pp2Tp2", .cp = 2, .pp = 2, .tp = 2, .sequence_parallel = true},
                    // Replicas gather weights together.
                    Layout{.name = "Dp2Zero3", .dp = 2, .zero_stage = 3},
                    Layout{.name = "Dp2Cp2Pp2Zero3", .dp = 2, .cp = 2, .pp = 2, .zero_stage = 3}),
    [](const auto& info) { return info.param.name; });

TEST(KvCache, MemoryPerRankFallsWithCp) {
  ModelConfig config;
  config.heads = 4;
  config.hidden_size = 64;
  constexpr int64_t kTokens = 8192;
  auto device = *CpuDevice::Create("cpu:0", 64 << 20);
  int64_t whole = 0;
  for (const int cp : {1, 2, 4, 8}) {
    const auto cache = KvCache::Create(config, 2, kTokens, cp, 0, DType::kFloat32, *device);
    ASSERT_TRUE(cache.ok()) << cache.status();
    const int64_t bytes = device->arena().usage().current_bytes;
    if (cp == 1) whole = bytes;
    EXPECT_EQ(bytes * cp, whole) << "cp " << cp;
    EXPECT_EQ(bytes, 2 * 2 * kTokens / cp * 64 * 4);
  }
}

}  // namespace
}  // namespace tessera
