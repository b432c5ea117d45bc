// What a rank holds of GPT-2 124M's state with each zero_stage, as its arena measures it, and what
// a step moves over the zero group.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "plan/mesh.h"
#include "tests/parity/parity_harness.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

constexpr int kDp = 4;
constexpr int64_t kGpt2Parameters = 124439808;

v1::TrainingJobSpec Gpt2Small(v1::Precision precision, int zero_stage) {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(50257);
  model.set_context_length(1024);
  model.set_layers(12);
  model.set_heads(12);
  model.set_hidden_size(768);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(8);
  spec.mutable_learning_rate()->set_peak(1e-4);
  spec.mutable_batch()->set_global_batch_size(kDp);
  spec.set_steps(1);
  spec.set_precision(precision);
  spec.mutable_mesh()->set_dp(kDp);
  spec.set_zero_stage(zero_stage);
  return spec;
}

// Groups of rank 0 in a mesh of dp = kDp, whose other members are there but do nothing.
class Rank0 {
 public:
  Rank0() : device_(*CpuDevice::Create("cpu:0", int64_t{3} << 30)) {
    for (int i = 0; i < kDp; ++i) {
      if (i > 0) others_.push_back(*CpuDevice::Create(absl::StrCat("cpu:", i), 1 << 20));
      transports_.push_back(hub_.CreateTransport(i == 0 ? *device_ : *others_.back()));
    }
    for (const plan::GroupAxis axis : plan::kGroupAxes) Join(axis);
  }

  Device& device() { return *device_; }
  MeshGroups groups() const {
    return {groups_[0].get(), groups_[1].get(), groups_[2].get(), groups_[3].get(),
            groups_[4].get()};
  }

 private:
  void Join(plan::GroupAxis axis) {
    const plan::Group planned = plan::GroupOf({.dp = kDp}, 0, axis);
    std::vector<std::unique_ptr<Communicator>> joined(planned.members.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < static_cast<int>(joined.size()); ++r) {
      threads.emplace_back([&, r] {
        GroupSpec spec;
        spec.name = planned.name;
        spec.job_uid = "memory";
        spec.group_rank = r;
        for (const int member : planned.members) {
          spec.members.push_back(
              {member, absl::StrCat("workers/w", member), transports_[member]->address()});
        }
        joined[r] = *transports_[planned.members[r]]->Join(spec);
      });
    }
    for (std::thread& thread : threads) thread.join();
    groups_.push_back(std::move(joined[0]));
    for (size_t r = 1; r < joined.size(); ++r) idle_.push_back(std::move(joined[r]));
  }

  InProcessHub hub_;
  const std::unique_ptr<CpuDevice> device_;
  std::vector<std::unique_ptr<CpuDevice>> others_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Communicator>> groups_, idle_;
};

// Weights do not matter here.
class ZeroWeights : public WeightReader {
 public:
  const HfConfig& config() const override { return config_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  absl::Status ReadParameter(absl::string_view, int64_t, absl::Span<float> values) const override {
    std::fill(values.begin(), values.end(), 0.0f);
    return absl::OkStatus();
  }

 private:
  const HfConfig config_;
  const std::vector<ParameterSpec> parameters_;
};

double PerParameter(const ArenaUsage& usage, MemoryCategory category) {
  return static_cast<double>(usage.category[static_cast<int>(category)].peak_bytes) /
         static_cast<double>(kGpt2Parameters);
}

struct Expected {
  double parameters, gradients, optimizer;  // bytes of one parameter
};

void ExpectState(v1::Precision precision, const std::array<Expected, 4>& expected) {
  Rank0 rank;
  const ZeroWeights weights;
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(1000, 256, 1));
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    SCOPED_TRACE(absl::StrCat("zero_stage ", zero_stage));
    rank.device().arena().ResetPeaks();
    const auto trainer = Trainer::Create(Gpt2Small(precision, zero_stage), {}, rank.groups(), data,
                                         &weights, rank.device());
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const ArenaUsage usage = rank.device().arena().usage();
    const Expected& each = expected[zero_stage];
    EXPECT_NEAR(PerParameter(usage, MemoryCategory::kParameters), each.parameters,
                0.01 * each.parameters);
    EXPECT_NEAR(PerParameter(usage, MemoryCategory::kGradients), each.gradients,
                0.01 * each.gradients);
    EXPECT_NEAR(PerParameter(usage, MemoryCategory::kOptimizer), each.optimizer,
                0.01 * each.optimizer);
  }
}

// 16, 4 + 12/4, 2 + 14/4 and 16/4 bytes in all (ZeRO, table 1).
TEST(ZeroMemory, Bf16) {
  ExpectState(v1::PRECISION_BF16, {{{2, 2, 12}, {2, 2, 3}, {2, 0.5, 3}, {0.5, 0.5, 3}}});
}

// The parameters are the master.
TEST(ZeroMemory, Fp32) {
  ExpectState(v1::PRECISION_FP32, {{{4, 4, 8}, {4, 4, 2}, {4, 1, 2}, {1, 1, 2}}});
}

// Elements that rank 0's zero group moves in the last step, as payload.
int64_t ZeroElements(const ParityRun& run, CollectiveKind kind) {
  for (const TrafficLine& line : run.steps.back().traffic) {
    if (line.axis == plan::GroupAxis::kZero && line.kind == kind) return line.bytes / 4;
  }
  return 0;
}

// 2P, 2P, 2P and 3P elements of payload, of which each rank moves (d - 1) / d; P with its padding.
// The head's weights are gathered once, as its backward follows its forward at once.
TEST(ZeroTraffic, TwoTimesOrThreeTimesTheParameters) {
  v1::TrainingJobSpec spec = SmallSpec();  // tied: C = 24, T = 41, two layers of 12 tensors
  spec.mutable_mesh()->set_dp(4);
  spec.set_steps(2);
  spec.mutable_learning_rate()->set_warmup_steps(0);
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(4000, 257, 1));
  // Multiples of 32 elements for each tensor and of 128 for each unit.
  const int64_t embedding = 257 * 24 + 8 + 41 * 24 + 8, head = 128;
  const int64_t layer =
      2 * (32 + 32) + (24 * 72 + 96) + (24 * 24 + 32) + (24 * 96 + 96) + (96 * 24 + 32);
  auto padded = [](int64_t size) { return (size + 127) / 128 * 128; };
  const int64_t all = padded(embedding) + 2 * padded(layer) + head;
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    SCOPED_TRACE(absl::StrCat("zero_stage ", zero_stage));
    spec.set_zero_stage(zero_stage);
    const auto run = TrainInProcess(spec, data);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(ZeroElements(*run, CollectiveKind::kReduceScatter), all);
    EXPECT_EQ(ZeroElements(*run, CollectiveKind::kAllGather),
              zero_stage == 3 ? 2 * all - head : all);
  }
}

}  // namespace
}  // namespace tessera
