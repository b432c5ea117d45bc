// What offloading costs: step time of GPT-2 124M on one rank with its optimizer state on the
// device, in host memory and on disk, all in the same run, beside the least time that moving the
// state's bytes takes at the bandwidth measured then.
//
//   ./dev bench offload [--json=FILE] [--path=FOLDER] [--steps=2] [--rounds=2] [--micro_batches=8]
//                       [--threads=2] [--divisor=1]
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/adamw.h"
#include "kernels/cpu/cpu_device.h"
#include "storage/tier_store.h"
#include "tests/bench/copy_bandwidth.h"
#include "tests/parity/parity_harness.h"
#include "worker/offload/tier_buffers.h"

ABSL_FLAG(std::string, json, "", "File to write the figures to as one JSON object");
ABSL_FLAG(std::string, path, ".", "Folder on the disk of the nvme tier; a new one is made in it");
ABSL_FLAG(int, steps, 2, "Optimizer steps that count, after one that does not");
ABSL_FLAG(int, rounds, 2, "Times that all tiers are measured; the best of each counts");
ABSL_FLAG(int, micro_batches, 8, "Of a step, of 512 tokens");
ABSL_FLAG(int, threads, 2, "Of the rank");
ABSL_FLAG(int, divisor, 1, "Divides widths, layers and vocabulary: a quick run that says nothing");

namespace tessera {
namespace {

constexpr int64_t kDeviceBytes = int64_t{5} << 30;
constexpr int64_t kHostBytes = int64_t{2} << 30;
constexpr int64_t kValueBytes = 4 << 20;

struct TierCase {
  const char* name;
  v1::Tier tier;
};
constexpr TierCase kTiers[] = {
    {"none", v1::TIER_UNSPECIFIED}, {"host", v1::TIER_HOST}, {"nvme", v1::TIER_NVME}};

struct Result {
  double step_s = 0;
  double wait_s = 0;                          // for the tier
  int64_t read_bytes = 0, written_bytes = 0;  // of a step
};

struct Bandwidth {
  double copy_gbps = 0;  // read and written
  double nvme_write_gbps = 0, nvme_read_gbps = 0;
};

int Divided(int value, int least) { return std::max(least, value / absl::GetFlag(FLAGS_divisor)); }

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

v1::TrainingJobSpec MakeSpec(v1::Tier tier) {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(Divided(50257, 256));
  model.set_context_length(1024);
  model.set_layers(Divided(12, 2));
  model.set_heads(12);
  model.set_hidden_size(Divided(32, 2) * 24);
  spec.set_precision(v1::PRECISION_BF16);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(Divided(256, 16));
  spec.mutable_learning_rate()->set_peak(3e-4);
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches);
  spec.mutable_batch()->set_global_batch_size(2 * micro_batches);
  spec.mutable_batch()->set_micro_batches(micro_batches);
  spec.set_steps(1 + absl::GetFlag(FLAGS_steps));
  if (tier != v1::TIER_UNSPECIFIED) spec.mutable_offload()->mutable_optimizer()->set_tier(tier);
  return spec;
}

absl::StatusOr<Result> Run(v1::Tier tier, const std::string& folder) {
  const v1::TrainingJobSpec spec = MakeSpec(tier);
  const int64_t tokens = int64_t{spec.batch().global_batch_size()} * spec.data().sequence_length();
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(
      SyntheticTokens(tokens * (spec.steps() + 2), spec.model().vocab_size(), 1));
  ParityOptions options;
  options.device_bytes = kDeviceBytes;
  options.num_threads = absl::GetFlag(FLAGS_threads);
  options.collect_parameters = false;
  options.tiers.emplace();
  options.tiers->nvme_root = folder;
  options.tiers->host_bytes = kHostBytes;
  options.tiers->num_threads = options.num_threads;
  options.tiers->nvme_depth = 8;
  auto run = TrainInProcess(spec, data, options);
  if (!run.ok()) return run.status();
  Result result;
  for (const StepResult& step : run->steps) {
    if (step.step <= 1) continue;
    result.step_s += step.seconds;
    result.wait_s += step.host.wait_seconds + step.nvme.wait_seconds;
    const TierCounts& counts = tier == v1::TIER_HOST ? step.host : step.nvme;
    result.read_bytes = counts.read_bytes;
    result.written_bytes = counts.written_bytes;
  }
  result.step_s /= absl::GetFlag(FLAGS_steps);
  result.wait_s /= absl::GetFlag(FLAGS_steps);
  return result;
}

// The store alone, as the engine uses it: a step written and committed, and read.
void MeasureNvme(const std::string& folder, int64_t step_bytes, Bandwidth& bandwidth) {
  TierStoreOptions options;
  options.path = folder + "/bandwidth";
  auto store = TierStore::Open(options);
  Check(store.status());
  auto host = *CpuDevice::Create("host:0", 16 * kValueBytes, 1, CpuMemory::kHugePages);
  auto buffers = *TierBuffers::Create(12, kValueBytes, *host);
  const int values = std::max<int>(8, static_cast<int>(step_bytes / kValueBytes));
  const double bytes = static_cast<double>(values) * kValueBytes;
  const double write_s = SecondsOf([&] {
    auto writer = (*store)->BeginStep("bandwidth", 1, static_cast<int64_t>(bytes));
    Check(writer.status());
    for (int i = 0; i < values; ++i) {
      auto buffer = std::make_shared<TierBuffer>(buffers->Acquire());
      Check((*writer)->StartWrite("unit", "optimizer", i, DType::kFloat32, {kValueBytes / 4},
                                  buffer->bytes(),
                                  [buffer](const absl::Status&) { buffer->Release(); }));
    }
    Check((*writer)->Commit(""));
  });
  const double read_s = SecondsOf([&] {
    for (int i = 0; i < values; ++i) {
      auto buffer = std::make_shared<TierBuffer>(buffers->Acquire());
      Check((*store)->StartRead({"bandwidth", 1, "unit", "optimizer", i}, DType::kFloat32,
                                kValueBytes / 4, buffer->bytes(),
                                [buffer](const absl::Status& status) {
                                  Check(status);
                                  buffer->Release();
                                }));
    }
    buffers->WaitForAll();
  });
  Check((*store)->DropJob("bandwidth"));
  bandwidth.nvme_write_gbps = std::max(bandwidth.nvme_write_gbps, bytes / write_s * 1e-9);
  bandwidth.nvme_read_gbps = std::max(bandwidth.nvme_read_gbps, bytes / read_s * 1e-9);
}

// Parameters that the host updates in a second, of 16-bit gradients and weights.
double MeasureAdamW() {
  const int64_t count = int64_t{1} << (absl::GetFlag(FLAGS_divisor) > 1 ? 20 : 25);
  auto host =
      *CpuDevice::Create("host:0", count * 20, absl::GetFlag(FLAGS_threads), CpuMemory::kHugePages);
  auto stream = *host->CreateStream();
  const auto take = [&](DType dtype) {
    return *host->Allocate(count * DTypeSizeBytes(dtype), MemoryCategory::kWorkspace, "bench");
  };
  const DeviceBuffer master = take(DType::kFloat32), mean = take(DType::kFloat32),
                     square = take(DType::kFloat32), gradient = take(DType::kBFloat16),
                     weights = take(DType::kBFloat16);
  for (const DeviceBuffer* buffer : {&master, &mean, &square}) {
    Check(host->SetZero(buffer->View(DType::kFloat32, {count}), *stream));
  }
  for (const DeviceBuffer* buffer : {&gradient, &weights}) {
    Check(host->SetZero(buffer->View(DType::kBFloat16, {count}), *stream));
  }
  AdamWOptions options;
  options.learning_rate = 1e-3;
  options.low_precision_parameter = weights.View(DType::kBFloat16, {count});
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double seconds = SecondsOf([&] {
      Check(AdamW(master.View(DType::kFloat32, {count}), gradient.View(DType::kBFloat16, {count}),
                  mean.View(DType::kFloat32, {count}), square.View(DType::kFloat32, {count}),
                  options, *stream));
    });
    best = std::max(best, static_cast<double>(count) / seconds);
  }
  return best;
}

// Read: gradient, master, moments; written: master, moments, weights.
constexpr double kAdamWBytes = (2 + 4 + 4 + 4) + (4 + 4 + 4 + 2);

// The least time that a step's bytes take.
double IoSeconds(const TierCase& tier, const Result& result, const Bandwidth& bandwidth) {
  const auto read = static_cast<double>(result.read_bytes),
             written = static_cast<double>(result.written_bytes);
  if (tier.tier == v1::TIER_HOST) return (read + written) / bandwidth.copy_gbps * 1e-9;
  if (tier.tier == v1::TIER_NVME) {
    return read / bandwidth.nvme_read_gbps * 1e-9 + written / bandwidth.nvme_write_gbps * 1e-9;
  }
  return 0;
}

int Main() {
  std::string folder = absl::GetFlag(FLAGS_path) + "/offload_bench_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "--path=%s: no folder can be made in it\n",
                 absl::GetFlag(FLAGS_path).c_str());
    return 1;
  }
  Bandwidth bandwidth;
  bandwidth.copy_gbps = MeasureCopyBandwidth(absl::GetFlag(FLAGS_threads)).best_gbps();
  std::map<std::string, Result> best;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (const TierCase& tier : kTiers) {
      const auto result = Run(tier.tier, absl::StrCat(folder, "/", round, tier.name));
      Check(result.status());
      const auto [known, is_new] = best.emplace(tier.name, *result);
      if (!is_new && result->step_s < known->second.step_s) known->second = *result;
    }
    MeasureNvme(folder, best["nvme"].written_bytes, bandwidth);
  }
  std::filesystem::remove_all(folder);
  const double parameters_per_s = MeasureAdamW();
  const double adamw_share = parameters_per_s * kAdamWBytes / (bandwidth.copy_gbps * 1e9);

  std::printf("copy %.1f GB/s, nvme tier writes %.2f GB/s and reads %.2f GB/s\n",
              bandwidth.copy_gbps, bandwidth.nvme_write_gbps, bandwidth.nvme_read_gbps);
  std::printf("AdamW %.0f million parameters/s, %.2f of what copying their bytes allows\n",
              parameters_per_s * 1e-6, adamw_share);
  std::vector<std::string> runs;
  for (const TierCase& tier : kTiers) {
    const Result& result = best[tier.name];
    const double ratio = result.step_s / best["none"].step_s;
    const double io_s = IoSeconds(tier, result, bandwidth);
    const double to_bound = result.step_s / std::max(best["none"].step_s, io_s);
    std::printf(
        "%-5s %7.3f s, %.3f of none, %.3f of its bound (%.3f s of moving %.2f GB); waits "
        "%.3f s\n",
        tier.name, result.step_s, ratio, to_bound, io_s,
        static_cast<double>(result.read_bytes + result.written_bytes) * 1e-9, result.wait_s);
    runs.push_back(absl::StrCat("{\"tier\": \"", tier.name, "\", \"step_s\": ", result.step_s,
                                ", \"ratio_to_none\": ", ratio, ", \"ratio_to_bound\": ", to_bound,
                                ", \"io_s\": ", io_s, ", \"wait_s\": ", result.wait_s, "}"));
  }
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return 0;
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
    return 1;
  }
  std::fprintf(
      file, "{\"runs\": [%s], \"adamw_parameters_per_s\": %.0f, \"adamw_share_of_bound\": %.3f}\n",
      absl::StrJoin(runs, ", ").c_str(), parameters_per_s, adamw_share);
  return std::fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
