// Training of whole models in one process: tokens and FLOP per second, as a share of what oneDNN's
// matrix product reaches in the same run; where the time goes, and the memory.
//
//   ./dev bench train [--json=FILE] [--models=gpt2-124m,llama-107m,demo] [--precisions=fp32,bf16]
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/operation_times.h"
#include "tests/bench/product_limit.h"
#include "tests/parity/parity_harness.h"
#include "worker/model/units.h"
#include "worker/trainer/training_config.h"

ABSL_FLAG(std::string, json, "", "File to write the figures to as one JSON object");
ABSL_FLAG(std::vector<std::string>, models, std::vector<std::string>({"gpt2-124m", "llama-107m"}),
          "gpt2-124m, llama-107m (both batch 4, sequence 256) and demo (16 x 128)");
ABSL_FLAG(std::vector<std::string>, precisions, std::vector<std::string>({"fp32", "bf16"}),
          "fp32, bf16 and fp16");
ABSL_FLAG(int, threads, 2, "Threads of the device");
ABSL_FLAG(int, steps, 4, "Optimizer steps that count, after one that does not");
ABSL_FLAG(int, divisor, 1, "Divides widths, layers and vocabulary: a quick run that says nothing");

namespace tessera {
namespace {

constexpr int64_t kDeviceBytes = int64_t{10} << 30;

struct Limits {
  double fp32 = 0, bf16 = 0;  // GFLOP/s

  // fp16 is computed as bf16 is, so its limit is the same. Where oneDNN's 16-bit product is slower
  // than its fp32 one (it has no instructions for it), the fp32 one is what can be reached.
  double of(const std::string& precision) const {
    return precision == "fp32" ? fp32 : std::max(fp32, bf16);
  }
};

struct Result {
  std::string model, precision;
  double parameters = 0, tokens_per_s = 0, gflops = 0, share = 0, step_seconds = 0;
  std::array<double, kNumOperationFamilies> family_seconds = {};  // per step
  ArenaUsage usage = {};
};

int Divided(int value, int least) { return std::max(least, value / absl::GetFlag(FLAGS_divisor)); }

v1::TrainingJobSpec MakeSpec(const std::string& model_name, const std::string& precision) {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  const bool is_demo = model_name == "demo";
  const bool is_llama = model_name == "llama-107m";
  model.set_family(is_llama ? v1::MODEL_FAMILY_LLAMA : v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(is_demo ? 256 : Divided(is_llama ? 32000 : 50257, 256));
  model.set_context_length(is_demo ? 128 : 1024);
  model.set_layers(is_demo ? 5 : Divided(12, 1));
  model.set_heads(is_demo ? 4 : 12);
  // A multiple of the heads, twice.
  model.set_hidden_size(is_demo ? 128 : Divided(32, 2) * 24);
  if (is_llama) {
    model.set_kv_heads(4);
    model.set_intermediate_size(3 * model.hidden_size());
    model.set_tie_word_embeddings(true);
  }
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(is_demo ? 128 : Divided(256, 16));
  spec.mutable_learning_rate()->set_peak(3e-4);
  spec.mutable_batch()->set_global_batch_size(is_demo ? 16 : 4);
  spec.set_steps(1 + absl::GetFlag(FLAGS_steps));
  spec.set_precision(precision == "bf16"   ? v1::PRECISION_BF16
                     : precision == "fp16" ? v1::PRECISION_FP16
                                           : v1::PRECISION_FP32);
  return spec;
}

// 6 per parameter that is multiplied, so without the position table, which is only added; and
// attention's 12 * layers * width * sequence, as if it were not causal.
double FlopsPerToken(const v1::TrainingJobSpec& spec, double* parameters) {
  const ModelConfig config = MakeModelConfig(spec.model());
  double positions = 0;
  *parameters = 0;
  for (const UnitSpec& unit : Units(config)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      *parameters += static_cast<double>(parameter.shape.num_elements());
      if (parameter.name == "wpe.weight") positions = parameter.shape.num_elements();
    }
  }
  const double width = static_cast<double>(config.heads * config.head_size());
  return 6 * (*parameters - positions) +
         12.0 * config.layers * width * spec.data().sequence_length();
}

// Starts counting operations after the first step, which warms up.
absl::StatusOr<Result> Run(const std::string& model, const std::string& precision,
                           const Limits& limits) {
  const v1::TrainingJobSpec spec = MakeSpec(model, precision);
  const int64_t per_step =
      int64_t{spec.batch().global_batch_size()} * spec.data().sequence_length();
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(
      SyntheticTokens(per_step * (spec.steps() + 2), spec.model().vocab_size(), 1));
  ParityOptions options;
  options.num_threads = absl::GetFlag(FLAGS_threads);
  options.device_bytes = kDeviceBytes;
  options.collect_parameters = false;
  options.on_step = [](const StepResult& step) {
    if (step.step == 1) OperationTimes::SetEnabled(true);
  };
  auto run = TrainInProcess(spec, data, options);
  OperationTimes::SetEnabled(false);
  if (!run.ok()) return run.status();
  Result result{model, precision};
  std::vector<double> seconds;
  for (const StepResult& step : run->steps) {
    if (step.step > 1) seconds.push_back(step.seconds);
  }
  double total = 0;
  for (const double each : seconds) total += each;
  result.step_seconds = total / static_cast<double>(seconds.size());
  result.tokens_per_s = static_cast<double>(per_step) / result.step_seconds;
  result.gflops = FlopsPerToken(spec, &result.parameters) * result.tokens_per_s * 1e-9;
  result.share = result.gflops / limits.of(precision);
  result.family_seconds = OperationTimes::seconds();
  for (double& family : result.family_seconds) family /= static_cast<double>(seconds.size());
  result.usage = run->usage;
  return result;
}

void Print(const Result& result) {
  std::printf("%s %s: %.1f M parameters, %.0f tokens/s, %.1f GFLOP/s, %.3f of the limit\n",
              result.model.c_str(), result.precision.c_str(), result.parameters * 1e-6,
              result.tokens_per_s, result.gflops, result.share);
  double counted = 0;
  std::printf("  time:");
  for (int i = 0; i < kNumOperationFamilies; ++i) {
    const double share = result.family_seconds[i] / result.step_seconds;
    counted += share;
    if (share < 0.0005) continue;
    std::printf(" %s %.1f %%,", OperationFamilyName(static_cast<OperationFamily>(i)), 100 * share);
  }
  std::printf(" rest %.1f %% of %.2f s\n  peak memory, MB:", 100 * (1 - counted),
              result.step_seconds);
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    std::printf(" %s %.1f,", MemoryCategoryName(static_cast<MemoryCategory>(i)),
                static_cast<double>(result.usage.category[i].peak_bytes) * 1e-6);
  }
  std::printf(" in all %.1f\n", static_cast<double>(result.usage.peak_bytes) * 1e-6);
}

std::string ToJson(const Result& result) {
  std::vector<std::string> times, peaks;
  for (int i = 0; i < kNumOperationFamilies; ++i) {
    times.push_back(absl::StrCat("\"", OperationFamilyName(static_cast<OperationFamily>(i)),
                                 "\": ", result.family_seconds[i]));
  }
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    peaks.push_back(absl::StrCat("\"", MemoryCategoryName(static_cast<MemoryCategory>(i)),
                                 "\": ", result.usage.category[i].peak_bytes));
  }
  return absl::StrCat("{\"model\": \"", result.model, "\", \"precision\": \"", result.precision,
                      "\", \"threads\": ", absl::GetFlag(FLAGS_threads),
                      ", \"tokens_per_s\": ", result.tokens_per_s, ", \"gflops\": ", result.gflops,
                      ", \"share_of_limit\": ", result.share,
                      ", \"peak_bytes\": ", result.usage.peak_bytes,
                      ", \"step_seconds\": ", result.step_seconds, ", \"family_seconds\": {",
                      absl::StrJoin(times, ", "), "}, \"category_peak_bytes\": {",
                      absl::StrJoin(peaks, ", "), "}}");
}

int Main() {
  const int threads = absl::GetFlag(FLAGS_threads), divisor = absl::GetFlag(FLAGS_divisor);
  const int rounds = divisor == 1 ? 5 : 1;
  const Limits limits{ProductLimitGflops(DType::kFloat32, threads, rounds, divisor),
                      ProductLimitGflops(DType::kBFloat16, threads, rounds, divisor)};
  std::printf("limit, oneDNN at 2048 x 3072 x 768, %d threads: fp32 %.1f GFLOP/s, bf16 %.1f%s\n",
              threads, limits.fp32, limits.bf16,
              limits.bf16 < limits.fp32 ? " (below fp32, which is then the limit)" : "");
  std::vector<std::string> runs;
  for (const std::string& model : absl::GetFlag(FLAGS_models)) {
    if (model != "gpt2-124m" && model != "llama-107m" && model != "demo") {
      std::fprintf(stderr, "--models: there is no model '%s'\n", model.c_str());
      return 2;
    }
    for (const std::string& precision : absl::GetFlag(FLAGS_precisions)) {
      if (precision != "fp32" && precision != "bf16" && precision != "fp16") {
        std::fprintf(stderr, "--precisions: there is no precision '%s'\n", precision.c_str());
        return 2;
      }
      auto result = Run(model, precision, limits);
      if (!result.ok()) {
        std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
        return 1;
      }
      Print(*result);
      runs.push_back(ToJson(*result));
    }
  }
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return 0;
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "--json: cannot write %s\n", path.c_str());
    return 1;
  }
  std::fprintf(file, "{\"limit_gflops\": {\"fp32\": %.2f, \"bf16\": %.2f}, \"runs\": [%s]}\n",
               limits.fp32, limits.bf16, absl::StrJoin(runs, ",\n  ").c_str());
  return std::fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
