// What a small model learns: nanoGPT's character-level run on CPU (config/train_shakespeare_char.py
// with the README's small setting: 4 layers, 4 heads, width 128, context 64, batch 12, 2000 steps,
// no dropout) on its own token files. nanoGPT reports a validation loss of 1.88.
//
//   ./dev bench character --data=FOLDER    FOLDER holds train.bin and val.bin
#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/parity/parity_harness.h"

ABSL_FLAG(std::string, json, "", "File to write the figures to as one JSON object");
ABSL_FLAG(std::string, data, "../shared/data/tinyshakespeare/nanogpt_char",
          "Folder of train.bin and val.bin, characters as nanoGPT's prepare.py numbers them");
ABSL_FLAG(int, steps, 2000, "Optimizer steps");
ABSL_FLAG(std::string, precision, "fp32", "fp32, bf16 or fp16");

namespace tessera {
namespace {

v1::TrainingJobSpec MakeSpec() {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(65);
  model.set_context_length(64);
  model.set_layers(4);
  model.set_heads(4);
  model.set_hidden_size(128);
  v1::DataSpec& data = *spec.mutable_data();
  data.set_path("train.bin");
  data.set_validation_path("val.bin");
  data.set_format(v1::DATA_FORMAT_NANOGPT);
  data.set_sequence_length(64);
  spec.mutable_learning_rate()->set_peak(1e-3);
  spec.mutable_learning_rate()->set_final(1e-4);
  const int steps = absl::GetFlag(FLAGS_steps);
  spec.mutable_learning_rate()->set_warmup_steps(std::min(100, steps));
  spec.mutable_optimizer()->set_beta2(0.99);
  spec.mutable_batch()->set_global_batch_size(12);
  spec.mutable_evaluation()->set_every_steps(std::max(1, steps / 8));
  spec.mutable_seeds()->set_init(1337);
  spec.mutable_seeds()->set_data(1337);
  spec.set_steps(steps);
  spec.set_precision(absl::GetFlag(FLAGS_precision) == "bf16"   ? v1::PRECISION_BF16
                     : absl::GetFlag(FLAGS_precision) == "fp16" ? v1::PRECISION_FP16
                                                                : v1::PRECISION_FP32);
  return spec;
}

int Main() {
  const v1::TrainingJobSpec spec = MakeSpec();
  auto data = OpenJobData(spec, absl::GetFlag(FLAGS_data));
  if (!data.ok()) {
    std::fprintf(stderr, "--data=%s: %s\n", absl::GetFlag(FLAGS_data).c_str(),
                 std::string(data.status().message()).c_str());
    return 1;
  }
  ParityOptions options;
  options.on_step = [](const StepResult& step) {
    if (!step.validation_loss) return;
    std::printf("step %5ld  loss %.4f  validation %.4f\n", static_cast<long>(step.step), step.loss,
                *step.validation_loss);
    std::fflush(stdout);
  };
  auto run = TrainInProcess(spec, *data, options);
  if (!run.ok()) {
    std::fprintf(stderr, "%s\n", run.status().ToString().c_str());
    return 1;
  }
  double seconds = 0;
  for (const StepResult& step : run->steps) seconds += step.seconds;
  const double loss = *run->steps.back().validation_loss;
  std::printf("validation loss %.4f after %d steps in %.1f s\n", loss, absl::GetFlag(FLAGS_steps),
              seconds);
  if (absl::GetFlag(FLAGS_json).empty()) return 0;
  FILE* file = std::fopen(absl::GetFlag(FLAGS_json).c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "--json: cannot write %s\n", absl::GetFlag(FLAGS_json).c_str());
    return 1;
  }
  std::fprintf(file, "{\"steps\": %d, \"validation_loss\": %.5f, \"seconds\": %.2f}\n",
               absl::GetFlag(FLAGS_steps), loss, seconds);
  return std::fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
