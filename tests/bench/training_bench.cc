// Tokens per second of one rank on the demo's model, its share of the machine's sgemm rate, and,
// on a text file, what a set of hyper-parameters reaches.
//
//   bazel run //tests/bench:training_benchmark -- --steps=50 --batch=16 [--text=FILE]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/matmul.h"
#include "tests/parity/parity_harness.h"

ABSL_FLAG(std::string, text, "", "Text file; its last twentieth is held out. Empty: random bytes");
ABSL_FLAG(std::string, json, "", "File to write the figures to as one JSON object");
ABSL_FLAG(int, steps, 50, "Optimizer steps");
ABSL_FLAG(int, batch, 16, "Sequences per step");
ABSL_FLAG(int, dp, 1, "Ranks, as threads");
ABSL_FLAG(int, micro_batches, 1, "Micro-batches per step and rank");
ABSL_FLAG(int, context, 128, "Tokens per sequence");
ABSL_FLAG(int, layers, 5, "Decoder layers");
ABSL_FLAG(int, heads, 4, "Attention heads");
ABSL_FLAG(int, width, 128, "Width of the residual stream");
ABSL_FLAG(double, peak, 3e-3, "Peak learning rate");
ABSL_FLAG(double, final, 3e-4, "Final learning rate");
ABSL_FLAG(int, warmup, 20, "Warm-up steps");
ABSL_FLAG(double, beta2, 0.95, "Adam's beta2");
ABSL_FLAG(double, weight_decay, 0.1, "Weight decay");
ABSL_FLAG(double, range, 0.02, "Standard deviation of the initial weights");
ABSL_FLAG(int, evaluate, 0, "Evaluate every so many steps; 0: only at the ends, with --text");
ABSL_FLAG(int, threads, 1, "Threads of the device");

namespace tessera {
namespace {

// Processor time of this process: a busy machine changes it little, wall time a lot.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// GFLOP per second of processor time of the demo's largest product, with which the rate of whole
// steps is compared.
double SgemmGflops() {
  auto device = *CpuDevice::Create("cpu:0", 64 << 20);
  auto stream = *device->CreateStream();
  constexpr int64_t m = 1024, n = 512, k = 128;
  auto buffer = *device->Allocate((m * k + k * n + m * n) * 4, MemoryCategory::kWorkspace, "sgemm");
  const Tensor a = buffer.View(DType::kFloat32, {m, k});
  const Tensor b = buffer.View(DType::kFloat32, {k, n}, m * k * 4);
  const Tensor c = buffer.View(DType::kFloat32, {m, n}, (m * k + k * n) * 4);
  (void)device->SetZero(buffer.View(DType::kFloat32, {m * k + k * n + m * n}), *stream);
  double best = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const double start = CpuSeconds();
    for (int i = 0; i < 30; ++i) (void)Matmul(a, b, c, {}, *stream);
    best = std::max(best, 30 * 2.0 * m * n * k / (CpuSeconds() - start) * 1e-9);
  }
  return best;
}

// Products of a token's forward and backward: 6 per weight of a matrix, and attention's, of which
// the causal half counts.
double FlopsPerToken(const v1::TrainingJobSpec& spec) {
  const double c = spec.model().hidden_size(), layers = spec.model().layers();
  const double time = spec.data().sequence_length();
  const double weights = layers * 12 * c * c + spec.model().vocab_size() * c;
  return 6 * weights + layers * 12 * time * c / 2;
}

JobData LoadData(const std::string& path, int vocab) {
  std::vector<int32_t> tokens;
  if (path.empty()) {
    tokens = SyntheticTokens(1 << 20, vocab, 1);
  } else {
    std::ifstream file(path, std::ios::binary);
    for (std::istreambuf_iterator<char> it(file), end; it != end; ++it) {
      tokens.push_back(static_cast<unsigned char>(*it));
    }
  }
  const auto split = tokens.begin() + tokens.size() / 20 * 19;
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(std::vector<int32_t>(tokens.begin(), split));
  data.validation = std::make_unique<MemoryTokenSource>(std::vector<int32_t>(split, tokens.end()));
  return data;
}

v1::TrainingJobSpec MakeSpec() {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(256);
  model.set_context_length(absl::GetFlag(FLAGS_context));
  model.set_layers(absl::GetFlag(FLAGS_layers));
  model.set_heads(absl::GetFlag(FLAGS_heads));
  model.set_hidden_size(absl::GetFlag(FLAGS_width));
  model.set_initializer_range(absl::GetFlag(FLAGS_range));
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(absl::GetFlag(FLAGS_context));
  spec.mutable_learning_rate()->set_peak(absl::GetFlag(FLAGS_peak));
  spec.mutable_learning_rate()->set_final(absl::GetFlag(FLAGS_final));
  spec.mutable_learning_rate()->set_warmup_steps(absl::GetFlag(FLAGS_warmup));
  spec.mutable_optimizer()->set_beta2(absl::GetFlag(FLAGS_beta2));
  spec.mutable_optimizer()->set_weight_decay(absl::GetFlag(FLAGS_weight_decay));
  spec.mutable_batch()->set_global_batch_size(absl::GetFlag(FLAGS_batch));
  spec.mutable_batch()->set_micro_batches(absl::GetFlag(FLAGS_micro_batches));
  spec.mutable_mesh()->set_dp(absl::GetFlag(FLAGS_dp));
  spec.set_steps(absl::GetFlag(FLAGS_steps));
  if (!absl::GetFlag(FLAGS_text).empty()) {
    const int every = absl::GetFlag(FLAGS_evaluate);
    spec.mutable_evaluation()->set_every_steps(every > 0 ? every : absl::GetFlag(FLAGS_steps));
    spec.mutable_evaluation()->set_sequences(256);
    spec.mutable_sample()->set_prompt("In the beginning ");
    spec.mutable_sample()->set_max_new_tokens(200);
    spec.mutable_sample()->set_temperature(0.8);
  }
  return spec;
}

int Main() {
  const v1::TrainingJobSpec spec = MakeSpec();
  const double sgemm = SgemmGflops();
  const double cpu_start = CpuSeconds();
  ParityOptions options;
  options.num_threads = absl::GetFlag(FLAGS_threads);
  auto run =
      TrainInProcess(spec, LoadData(absl::GetFlag(FLAGS_text), spec.model().vocab_size()), options);
  if (!run.ok()) {
    std::fprintf(stderr, "%s\n", run.status().ToString().c_str());
    return 1;
  }
  const double cpu_seconds = CpuSeconds() - cpu_start;
  double seconds = 0;
  int64_t tokens = 0;
  for (const StepResult& step : run->steps) {
    if (step.validation_loss) {
      std::printf("step %ld loss %.4f validation %.4f\n", static_cast<long>(step.step), step.loss,
                  *step.validation_loss);
    }
    if (step.step == 0) continue;
    seconds += step.seconds;
    tokens += step.tokens;
  }
  std::printf("last loss %.4f\n%s\n", run->steps.back().loss, run->sample.c_str());
  const double rate = static_cast<double>(tokens) / cpu_seconds;
  const double gflops = rate * FlopsPerToken(spec) * 1e-9;
  std::printf("%.1f s of steps, %.0f tokens/s; %.0f tokens per second of processor time\n", seconds,
              static_cast<double>(tokens) / seconds, rate);
  std::printf("%.1f GFLOP/s, %.0f%% of sgemm's %.1f (processor time; evaluation counts as none)\n",
              gflops, 100 * gflops / sgemm, sgemm);
  if (absl::GetFlag(FLAGS_json).empty()) return 0;
  FILE* json = std::fopen(absl::GetFlag(FLAGS_json).c_str(), "w");
  const bool written =
      json != nullptr &&
      std::fprintf(json,
                   "{\"tokens_per_second\": %.1f, \"tokens_per_cpu_second\": %.1f, "
                   "\"gflops\": %.2f, \"sgemm_gflops\": %.2f, \"ratio_to_sgemm\": %.4f}\n",
                   static_cast<double>(tokens) / seconds, rate, gflops, sgemm, gflops / sgemm) > 0;
  if (json == nullptr || std::fclose(json) != 0 || !written) {
    std::fprintf(stderr, "%s: cannot be written\n", absl::GetFlag(FLAGS_json).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
