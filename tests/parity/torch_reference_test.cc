// Ten steps of the C++ trainer against PyTorch (torch_reference.py): same weights, data order and
// optimizer; losses and gradient norms within 1e-5 relative, and after ten steps every parameter
// within 1e-5 of its tensor's largest element.
//
// What makes that comparison mean something. Adam divides a gradient by its own size, so where a
// gradient is 0 in exact arithmetic (the key bias: it shifts all scores of a row alike) or tiny,
// fp32's noise would be blown up to full steps if epsilon were far below it. So:
//  - PyTorch runs in fp64: only one side's noise counts;
//  - epsilon is 1e-4, far above that noise (about 1e-9) and below most gradients;
//  - biases and norms start at random values, so that every tensor has a scale to compare with, and
//    no gradient is small by the symmetry of an untrained network.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/status_macros.h"
#include "tests/parity/parity_harness.h"
#include "worker/data/sample_order.h"

namespace tessera {
namespace {

constexpr double kRelative = 1e-5;

struct Case {
  const char* name;
  int hidden_size = 24;
  int intermediate_size = 96;
  int dp = 1;
  int micro_batches = 1;
  bool masked = false;
  double clip_norm = HUGE_VAL;
  bool clip_before_reduce = false;
};

v1::TrainingJobSpec MakeSpec(const Case& c) {
  v1::TrainingJobSpec spec = SmallSpec();  // vocabulary 257, sequence 37, 3 heads
  spec.mutable_model()->set_hidden_size(c.hidden_size);
  spec.mutable_model()->set_intermediate_size(c.intermediate_size);
  spec.mutable_mesh()->set_dp(c.dp);
  spec.mutable_batch()->set_micro_batches(c.micro_batches);
  spec.mutable_optimizer()->set_epsilon(1e-4);
  spec.mutable_optimizer()->set_gradient_clip_norm(c.clip_norm);
  if (c.clip_before_reduce) {
    spec.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
  }
  if (c.masked) {
    spec.mutable_data()->add_ignore_target_ids(7);
    spec.mutable_data()->add_ignore_target_ids(11);
  }
  return spec;
}

JobData MakeData(const Case& c) {
  std::vector<int32_t> tokens = SyntheticTokens(37 * 100 + 1, 257, 9);
  // Three windows of every ten carry no loss, others do in part: ranks get uneven shares.
  for (size_t i = 0; c.masked && i < tokens.size(); ++i) {
    if (i / 37 % 10 < 3) tokens[i] = 7;
    if (i % 5 == 0) tokens[i] = 11;
  }
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(std::move(tokens));
  return data;
}

// Random values for every parameter, of GPT-2's shapes.
absl::Status Randomize(Trainer& trainer) {
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  for (const std::string& name : trainer.parameter_names()) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> values, trainer.ReadParameter(name));
    const bool norm_weight = values[0] == 1.0f && values.back() == 1.0f;
    const bool bias = name.ends_with("bias");
    const double scale = norm_weight || bias ? 0.1 : 0.12;
    for (float& value : values) {
      value = static_cast<float>((norm_weight ? 1 : 0) + scale * normal(random));
    }
    TESSERA_RETURN_IF_ERROR(trainer.WriteParameter(name, values));
  }
  return absl::OkStatus();
}

template <typename T>
void WriteFile(const std::string& path, const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  ASSERT_TRUE(file.good()) << path;
}

std::vector<double> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::vector<double> values(file.tellg() / sizeof(double));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), values.size() * sizeof(double));
  return values;
}

// Names and shapes in forward order, as JSON.
std::string ParametersJson(const v1::TrainingJobSpec& spec) {
  const int64_t c = spec.model().hidden_size(), f = spec.model().intermediate_size();
  std::vector<std::string> items;
  auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    items.push_back(absl::StrCat("[\"", name, "\",[", absl::StrJoin(shape, ","), "]]"));
  };
  add("wte.weight", {spec.model().vocab_size(), c});
  add("wpe.weight", {spec.model().context_length(), c});
  for (int i = 0; i < spec.model().layers(); ++i) {
    const std::string p = absl::StrCat("h.", i, ".");
    add(p + "ln_1.weight", {c});
    add(p + "ln_1.bias", {c});
    add(p + "attn.c_attn.weight", {c, 3 * c});
    add(p + "attn.c_attn.bias", {3 * c});
    add(p + "attn.c_proj.weight", {c, c});
    add(p + "attn.c_proj.bias", {c});
    add(p + "ln_2.weight", {c});
    add(p + "ln_2.bias", {c});
    add(p + "mlp.c_fc.weight", {c, f});
    add(p + "mlp.c_fc.bias", {f});
    add(p + "mlp.c_proj.weight", {f, c});
    add(p + "mlp.c_proj.bias", {c});
  }
  add("ln_f.weight", {c});
  add("ln_f.bias", {c});
  return absl::StrCat("[", absl::StrJoin(items, ","), "]");
}

void WriteCase(const std::string& directory, const v1::TrainingJobSpec& spec, const JobData& data,
               const std::vector<float>& weights) {
  const double clip = spec.optimizer().gradient_clip_norm();
  std::ofstream(directory + "/case.json") << absl::StrCat(
      "{\"layers\":", spec.model().layers(), ",\"heads\":", spec.model().heads(),
      ",\"layer_norm_epsilon\":1e-5,\"steps\":", spec.steps(),
      ",\"sequence_length\":", spec.data().sequence_length(), ",\"dp\":", spec.mesh().dp(),
      ",\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":", spec.optimizer().epsilon(),
      ",\"weight_decay\":0.1,\"clip_norm\":", std::isinf(clip) ? "Infinity" : absl::StrCat(clip),
      ",\"clip_before_reduce\":",
      spec.optimizer().gradient_clipping() == v1::GRADIENT_CLIPPING_BEFORE_REDUCE ? "true"
                                                                                  : "false",
      ",\"peak\":", spec.learning_rate().peak(), ",\"final\":", spec.learning_rate().peak() / 10,
      ",\"warmup_steps\":", spec.learning_rate().warmup_steps(),
      ",\"parameters\":", ParametersJson(spec), "}");
  WriteFile(directory + "/weights.f32", weights);
  const int64_t time = spec.data().sequence_length();
  const int64_t samples = spec.steps() * spec.batch().global_batch_size();
  std::vector<int32_t> inputs(samples * time), targets(samples * time);
  const SampleOrder order(data.train->num_tokens(), time, spec.seeds().data());
  const std::vector<int32_t> ignored(spec.data().ignore_target_ids().begin(),
                                     spec.data().ignore_target_ids().end());
  for (int64_t i = 0; i < samples; ++i) {
    FillSequence(*data.train, order.WindowBegin(i), ignored,
                 absl::MakeSpan(inputs).subspan(i * time, time),
                 absl::MakeSpan(targets).subspan(i * time, time));
  }
  WriteFile(directory + "/inputs.i32", inputs);
  WriteFile(directory + "/targets.i32", targets);
}

const Case kCases[] = {
    {.name = "Plain"},
    {.name = "ClipAfterReduce", .clip_norm = 0.5},
    {.name = "OddWidths", .hidden_size = 33, .intermediate_size = 50},
    {.name = "MaskedMicroBatches", .dp = 2, .micro_batches = 3, .masked = true, .clip_norm = 0.5},
    {.name = "MaskedClipBeforeReduce",
     .dp = 4,
     .micro_batches = 3,
     .masked = true,
     .clip_norm = 0.5,
     .clip_before_reduce = true},
};

std::string Directory(const Case& c) { return absl::StrCat(testing::TempDir(), "/", c.name); }

struct Ours {
  std::vector<std::string> names;  // forward order
  std::vector<float> initial;      // all parameters, in that order
  ParityRun run;
};

// Trains the case here and writes what PyTorch needs to do the same.
absl::StatusOr<Ours> Train(const Case& c) {
  const v1::TrainingJobSpec spec = MakeSpec(c);
  const JobData data = MakeData(c);
  Ours ours;
  std::mutex mutex;  // ranks are threads; all hold the same
  ParityOptions options;
  options.prepare = [&](Trainer& trainer) {
    TESSERA_RETURN_IF_ERROR(Randomize(trainer));
    std::lock_guard<std::mutex> lock(mutex);
    ours.names = trainer.parameter_names();
    ours.initial.clear();
    for (const std::string& name : ours.names) {
      TESSERA_ASSIGN_OR_RETURN(std::vector<float> values, trainer.ReadParameter(name));
      ours.initial.insert(ours.initial.end(), values.begin(), values.end());
    }
    return absl::OkStatus();
  };
  TESSERA_ASSIGN_OR_RETURN(ours.run, TrainInProcess(spec, data, options));
  WriteCase(Directory(c), spec, data, ours.initial);
  return ours;
}

class TorchReference : public testing::TestWithParam<Case> {
 protected:
  // One PyTorch process for all cases: its start takes longer than the steps.
  static void SetUpTestSuite() {
    std::string command = "/usr/bin/python3 tests/parity/torch_reference.py";
    for (const Case& c : kCases) {
      ASSERT_EQ(std::system(absl::StrCat("mkdir -p ", Directory(c)).c_str()), 0);
      auto ours = Train(c);
      ASSERT_TRUE(ours.ok()) << c.name << ": " << ours.status();
      runs_[c.name] = *std::move(ours);
      absl::StrAppend(&command, " ", Directory(c));
    }
    ASSERT_EQ(std::system(command.c_str()), 0) << "needs Debian's python3-torch";
  }
  static inline std::map<std::string, Ours> runs_;
};

TEST_P(TorchReference, TenSteps) {
  const Case& c = GetParam();
  const Ours& ours = runs_.at(c.name);
  const std::vector<double> steps = ReadFile(Directory(c) + "/steps.f64");
  const std::vector<double> weights = ReadFile(Directory(c) + "/weights.f64");
  ASSERT_EQ(steps.size(), 20u);
  ASSERT_EQ(weights.size(), ours.initial.size());
  double largest_norm = 0;
  for (int i = 0; i < 10; ++i) {
    const StepResult& step = ours.run.steps[i];
    EXPECT_NEAR(step.loss, steps[2 * i], kRelative * steps[2 * i]) << "step " << i + 1;
    EXPECT_NEAR(step.gradient_norm, steps[2 * i + 1], kRelative * steps[2 * i + 1])
        << "step " << i + 1;
    largest_norm = std::max(largest_norm, step.gradient_norm);
  }
  // The cases do what their names say: unclipped norms are above 0.5, and contributions clipped to
  // 0.5 each have a mean of at most that.
  if (c.clip_before_reduce) {
    EXPECT_LE(largest_norm, 0.5 * (1 + kRelative));
  } else {
    EXPECT_GT(largest_norm, 0.5);
  }
  double worst = 0;
  size_t offset = 0;
  for (const std::string& name : ours.names) {
    const std::vector<float>& values = ours.run.parameters.at(name);
    double scale = 0, difference = 0, moved = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      scale = std::max(scale, std::abs(weights[offset + i]));
      difference = std::max(difference, std::abs(weights[offset + i] - values[i]));
      moved = std::max(moved, std::abs(weights[offset + i] - ours.initial[offset + i]));
    }
    EXPECT_LE(difference, kRelative * scale) << name;
    EXPECT_GT(moved, 100 * kRelative * scale) << name << " has hardly moved";
    worst = std::max(worst, difference / scale);
    offset += values.size();
  }
  std::printf("worst parameter difference %.2g of its tensor's scale\n", worst);
}

INSTANTIATE_TEST_SUITE_P(Cases, TorchReference, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
