// Ten steps of the C++ trainer against PyTorch (torch_reference.py): same weights, data order and
// optimizer, for both families. In fp32, losses and gradient norms within 1e-5 relative, and after
// ten steps every parameter within 1e-5 of its tensor's largest element.
//
// What makes that comparison mean something. Adam divides a gradient by its own size, so where a
// gradient is 0 in exact arithmetic (the key bias: it shifts all scores of a row alike) or tiny,
// fp32's noise would be blown up to full steps if epsilon were far below it. So:
//  - PyTorch runs in fp64: only one side's noise counts;
//  - epsilon is 1e-4, far above that noise (about 1e-9) and below most gradients;
//  - biases and norms start at random values, so that every tensor has a scale to compare with, and
//    no gradient is small by the symmetry of an untrained network.
//
// bf16 and fp16, against the same fp64: with unit roundoff u (2^-8, 2^-11), weights, about ten
// tensors a layer and the logits are rounded on the way forward, as many on the way back. Their
// errors are independent, so after L = 2 layers a gradient is off by about sqrt(2 * 10 L + 2) u =
// 6.5 u of its norm, which norms and softmax amplify a little: 16 u for the gradient of a tensor.
// For sums over tensors or tokens errors average out: 4 u for gradient norms, and 1 u for losses
// (of about 5.6 nats, the mean of hundreds of targets). To compare weights, Adam must not turn a
// gradient's error into a full step: epsilon is 1, above every gradient, so that a weight moves by
// the learning rate (then 3) times its gradient's running mean, and a tensor's movement over ten
// steps errs as its gradients do, 16 u of the movement's norm, and by what the 16-bit copy of the
// weights lags behind the master, which is inside.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/status_macros.h"
#include "tests/parity/parity_harness.h"
#include "worker/data/sample_order.h"
#include "worker/model/units.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

constexpr double kRelative = 1e-5;
constexpr int kLayers = 2;

struct Case {
  const char* name;
  int hidden_size = 24;
  int intermediate_size = 96;
  int dp = 1;
  int micro_batches = 1;
  bool masked = false;
  double clip_norm = HUGE_VAL;
  bool clip_before_reduce = false;
  bool llama = false;
  std::optional<bool> tied = {};
  int kv_heads = 0;  // llama: 0 means heads
  int head_size = 0;
  bool attention_bias = false;
  bool rope_scaling = false;
  v1::Precision precision = v1::PRECISION_FP32;
  v1::Precision gradient_precision = v1::PRECISION_UNSPECIFIED;
  v1::Recompute recompute = v1::RECOMPUTE_NONE;
};

bool IsFp32(const Case& c) { return c.precision == v1::PRECISION_FP32; }

v1::TrainingJobSpec MakeSpec(const Case& c) {
  v1::TrainingJobSpec spec = SmallSpec();  // vocabulary 257, sequence 37, 3 heads
  spec.mutable_model()->set_hidden_size(c.hidden_size);
  spec.mutable_model()->set_intermediate_size(c.intermediate_size);
  spec.mutable_mesh()->set_dp(c.dp);
  spec.mutable_batch()->set_micro_batches(c.micro_batches);
  spec.mutable_optimizer()->set_epsilon(IsFp32(c) ? 1e-4 : 1);
  if (!IsFp32(c)) spec.mutable_learning_rate()->set_peak(3);
  spec.set_precision(c.precision);
  // 2^10 keeps gradients of this size inside fp16, so that no step is skipped.
  if (c.precision == v1::PRECISION_FP16) spec.mutable_loss_scale()->set_initial(1024);
  spec.set_gradient_precision(c.gradient_precision);
  spec.set_recompute(c.recompute);
  v1::ModelSpec& model = *spec.mutable_model();
  if (c.tied) model.set_tie_word_embeddings(*c.tied);
  if (c.llama) {
    model.set_family(v1::MODEL_FAMILY_LLAMA);
    model.set_heads(4);
    if (c.kv_heads > 0) model.set_kv_heads(c.kv_heads);
    if (c.head_size > 0) model.set_head_size(c.head_size);
    model.set_attention_bias(c.attention_bias);
    model.set_rope_theta(500);
    if (c.rope_scaling) {
      model.mutable_rope_scaling()->set_factor(8);
      model.mutable_rope_scaling()->set_original_context_length(64);
    }
  }
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

// Random values for every parameter.
absl::Status Randomize(Trainer& trainer) {
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  for (const std::string& name : trainer.parameter_names()) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> values, trainer.ReadParameter(name));
    const bool norm_weight = values[0] == 1.0f && values.back() == 1.0f;  // before training
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

// Names and shapes in forward order, as JSON. The config repeats the spec's defaults by itself.
std::string ParametersJson(const v1::TrainingJobSpec& spec) {
  const auto config = MakeTrainingConfig(spec, {});
  std::vector<std::string> items;
  for (const UnitSpec& unit : Units(config->model)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      std::vector<int64_t> dims;
      for (int i = 0; i < parameter.shape.num_dims(); ++i) dims.push_back(parameter.shape.dim(i));
      items.push_back(absl::StrCat("[\"", parameter.name, "\",[", absl::StrJoin(dims, ","), "]]"));
    }
  }
  return absl::StrCat("[", absl::StrJoin(items, ","), "]");
}

std::string ModelJson(const v1::TrainingJobSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  const bool llama = model.family() == v1::MODEL_FAMILY_LLAMA;
  const bool tied = model.has_tie_word_embeddings() ? model.tie_word_embeddings() : !llama;
  const char* embedding = llama ? "model.embed_tokens.weight" : "wte.weight";
  return absl::StrCat("\"family\":\"", llama ? "llama" : "gpt2", "\",\"head\":\"",
                      tied ? embedding : "lm_head.weight", "\",\"layers\":", model.layers(),
                      ",\"heads\":", model.heads(),
                      ",\"kv_heads\":", model.has_kv_heads() ? model.kv_heads() : model.heads(),
                      ",\"norm_epsilon\":", llama ? "1e-6" : "1e-5",
                      ",\"rope_theta\":", model.rope_theta(), ",\"rope_scaling\":",
                      model.has_rope_scaling()
                          ? "{\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                            "\"original_context_length\":64}"
                          : "null");
}

void WriteCase(const std::string& directory, const v1::TrainingJobSpec& spec, const JobData& data,
               const std::vector<float>& weights) {
  const double clip = spec.optimizer().gradient_clip_norm();
  std::ofstream(directory + "/case.json") << absl::StrCat(
      "{", ModelJson(spec), ",\"steps\":", spec.steps(),
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
    {.name = "Untied", .tied = false},
    {.name = "FullRecompute", .clip_norm = 0.5, .recompute = v1::RECOMPUTE_FULL},
    {.name = "Llama", .clip_norm = 0.5, .llama = true},
    {.name = "LlamaGroupedHeads", .dp = 2, .masked = true, .llama = true, .kv_heads = 2},
    {.name = "LlamaOneKvHeadOddWidths",
     .hidden_size = 33,
     .intermediate_size = 50,
     .llama = true,
     .kv_heads = 1,
     .head_size = 6,
     .recompute = v1::RECOMPUTE_ATTENTION},
    {.name = "LlamaBiasedTiedScaled",
     .micro_batches = 3,
     .llama = true,
     .tied = true,
     .kv_heads = 2,
     .attention_bias = true,
     .rope_scaling = true},
    {.name = "Bf16", .dp = 2, .masked = true, .precision = v1::PRECISION_BF16},
    {.name = "Bf16LlamaFp32Gradients",
     .micro_batches = 3,
     .llama = true,
     .kv_heads = 2,
     .precision = v1::PRECISION_BF16,
     .gradient_precision = v1::PRECISION_FP32,
     .recompute = v1::RECOMPUTE_FULL},
    {.name = "Fp16", .dp = 2, .masked = true, .precision = v1::PRECISION_FP16},
    {.name = "Fp16Llama",
     .micro_batches = 3,
     .llama = true,
     .kv_heads = 2,
     .precision = v1::PRECISION_FP16},
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

// What a case may differ by: of a loss, of a gradient norm, of a parameter.
struct Tolerances {
  double loss, norm, parameter;
};

Tolerances TolerancesOf(const Case& c) {
  if (IsFp32(c)) return {kRelative, kRelative, kRelative};
  const double u = c.precision == v1::PRECISION_BF16 ? 0x1p-8 : 0x1p-11;
  return {u, 4 * u, 16 * u};
}

TEST_P(TorchReference, TenSteps) {
  const Case& c = GetParam();
  const Ours& ours = runs_.at(c.name);
  const Tolerances tolerances = TolerancesOf(c);
  const std::vector<double> steps = ReadFile(Directory(c) + "/steps.f64");
  const std::vector<double> weights = ReadFile(Directory(c) + "/weights.f64");
  ASSERT_EQ(steps.size(), 20u);
  ASSERT_EQ(weights.size(), ours.initial.size());
  double largest_norm = 0, worst_loss = 0, worst_norm = 0;
  for (int i = 0; i < 10; ++i) {
    const StepResult& step = ours.run.steps[i];
    EXPECT_NEAR(step.loss, steps[2 * i], tolerances.loss * steps[2 * i]) << "step " << i + 1;
    EXPECT_NEAR(step.gradient_norm, steps[2 * i + 1], tolerances.norm * steps[2 * i + 1])
        << "step " << i + 1;
    EXPECT_EQ(step.skipped_steps, 0);
    worst_loss = std::max(worst_loss, std::abs(step.loss / steps[2 * i] - 1));
    worst_norm = std::max(worst_norm, std::abs(step.gradient_norm / steps[2 * i + 1] - 1));
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
    double scale = 0, difference = 0, largest_move = 0;
    double squared_difference = 0, squared_move = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double off = weights[offset + i] - values[i];
      const double move = weights[offset + i] - ours.initial[offset + i];
      scale = std::max(scale, std::abs(weights[offset + i]));
      difference = std::max(difference, std::abs(off));
      largest_move = std::max(largest_move, std::abs(move));
      squared_difference += off * off;
      squared_move += move * move;
    }
    EXPECT_GT(largest_move, 100 * kRelative * scale) << name << " has hardly moved";
    const double error =
        IsFp32(c) ? difference / scale : std::sqrt(squared_difference / squared_move);
    EXPECT_LE(error, tolerances.parameter) << name;
    worst = std::max(worst, error);
    offset += values.size();
  }
  std::printf("worst: loss %.2g of %.2g, norm %.2g of %.2g, parameter %.2g of %.2g allowed\n",
              worst_loss, tolerances.loss, worst_norm, tolerances.norm, worst,
              tolerances.parameter);
}

INSTANTIATE_TEST_SUITE_P(Cases, TorchReference, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
