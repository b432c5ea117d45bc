#include "tests/parity/parity_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/status_macros.h"
#include "plan/mesh.h"
#include "storage/tier_store.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

class Recorder : public TrainingObserver {
 public:
  Recorder(std::function<void(const StepResult&)> on_step, std::optional<int64_t> suspend_after)
      : on_step_(std::move(on_step)), suspend_after_(suspend_after) {}
  absl::Status CheckStop() override { return absl::OkStatus(); }
  void OnStep(const StepResult& result) override {
    steps.push_back(result);
    if (on_step_) on_step_(result);
  }
  void OnStepBegin(int64_t) override {}
  bool WantsSuspend() override {
    return suspend_after_.has_value() && (steps.empty() ? 0 : steps.back().step) >= *suspend_after_;
  }
  void OnSuspendFailed(const absl::Status& status) override {
    ADD_FAILURE() << "suspend: " << status;
  }
  absl::Status OnTimeline(const plan::Timeline& traced) override {
    timeline = traced;
    return absl::OkStatus();
  }
  std::vector<StepResult> steps;
  plan::Timeline timeline;

 private:
  const std::function<void(const StepResult&)> on_step_;
  const std::optional<int64_t> suspend_after_;
};

// What WorkerTiers points to.
struct RankTiers {
  std::unique_ptr<CpuDevice> host;
  std::unique_ptr<TierStore> nvme;
};

absl::StatusOr<RankTiers> OpenTiers(const ParityTiers& options, int index) {
  RankTiers tiers;
  TESSERA_ASSIGN_OR_RETURN(tiers.host,
                           CpuDevice::Create(absl::StrCat("host:", index), options.host_bytes,
                                             options.num_threads, CpuMemory::kHugePages));
  if (options.nvme_root.empty()) return tiers;
  TierStoreOptions store;
  store.path = absl::StrCat(options.nvme_root, "/", index);
  store.write_depth = store.read_depth = options.nvme_depth;
  TESSERA_ASSIGN_OR_RETURN(tiers.nvme, TierStore::Open(store));
  return tiers;
}

GroupSpec MakeGroup(const plan::Group& planned, const std::vector<std::string>& addresses) {
  GroupSpec group;
  group.name = planned.name;
  group.job_uid = "parity";
  group.group_rank = planned.group_rank;
  for (const int member : planned.members) {
    group.members.push_back({member, absl::StrCat("workers/w", member), addresses[member]});
  }
  return group;
}

struct Rank {
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<Transport> transport;
  absl::Status status;
  ParityRun run;
};

// Counted and predicted traffic are equal, in every step that updates weights.
absl::Status CheckTraffic(int index, const std::vector<StepResult>& steps) {
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].skipped_steps != steps[i - 1].skipped_steps) continue;
    if (steps[i].traffic.empty()) return absl::InternalError("no traffic is reported");
    for (const TrafficLine& line : steps[i].traffic) {
      if (line.calls == line.predicted_calls && line.bytes == line.predicted_bytes) continue;
      return absl::InternalError(absl::StrCat(
          "rank ", index, ", step ", steps[i].step, ": ", plan::GroupAxisName(line.axis), " ",
          CollectiveKindName(line.kind), ": ", line.calls, " calls of ", line.bytes,
          " bytes, predicted ", line.predicted_calls, " of ", line.predicted_bytes));
    }
  }
  return absl::OkStatus();
}

bool IsSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

absl::Status CheckSameSteps(const std::vector<StepResult>& first,
                            const std::vector<StepResult>& other, int global_rank) {
  for (size_t i = 0; i < first.size(); ++i) {
    const StepResult &a = first[i], &b = other.at(i);
    if (!IsSame(a.loss, b.loss) || !IsSame(a.gradient_norm, b.gradient_norm) ||
        a.skipped_steps != b.skipped_steps || a.loss_scale != b.loss_scale ||
        a.validation_loss != b.validation_loss) {
      return absl::InternalError(absl::StrCat("rank ", global_rank, " disagrees on step ", a.step));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void MemoryTokenSource::Read(int64_t begin, absl::Span<int32_t> tokens) const {
  std::copy_n(tokens_.begin() + begin, tokens.size(), tokens.begin());
}

std::vector<int32_t> SyntheticTokens(int64_t count, int32_t vocab, uint32_t seed) {
  std::vector<int32_t> tokens(count);
  uint32_t state = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const uint32_t noise = state >> 24;
    const int32_t previous = i == 0 ? 0 : tokens[i - 1];
    tokens[i] = noise < 160 ? (previous * 7 + 3) % vocab : static_cast<int32_t>(state >> 8) % vocab;
  }
  return tokens;
}

plan::MeshSize MeshOf(const v1::TrainingJobSpec& spec) {
  return {.dp = std::max(1, spec.mesh().dp()),
          .cp = std::max(1, spec.mesh().cp()),
          .pp = std::max(1, spec.mesh().pp()),
          .tp = std::max(1, spec.mesh().tp())};
}

absl::Status TrainRank(const v1::TrainingJobSpec& spec, const JobData& data,
                       const ParityOptions& options, const std::vector<std::string>& addresses,
                       int index, Transport& transport, Device& device, ParityRun& run) {
  const plan::MeshSize mesh = MeshOf(spec);
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const plan::GroupAxis axis : plan::kGroupAxes) {
    TESSERA_ASSIGN_OR_RETURN(
        auto group, transport.Join(MakeGroup(plan::GroupOf(mesh, index, axis), addresses)));
    groups.push_back(std::move(group));
  }
  const MeshGroups by_axis{groups[0].get(), groups[1].get(), groups[2].get(), groups[3].get(),
                           groups[4].get()};
  const plan::Coordinates at = plan::CoordinatesOf(mesh, index);
  v1::MeshCoordinates coordinates;
  coordinates.set_global_rank(index);
  coordinates.set_dp_rank(at.dp_rank);
  coordinates.set_cp_rank(at.cp_rank);
  coordinates.set_pp_rank(at.pp_rank);
  coordinates.set_tp_rank(at.tp_rank);
  RankTiers tiers;
  StateOptions state;
  state.job_uid = "parity";
  if (options.tiers) {
    TESSERA_ASSIGN_OR_RETURN(tiers, OpenTiers(*options.tiers, index));
    state.tiers = {tiers.host.get(), tiers.nvme.get(), options.tiers->nvme_root + "/swap"};
    state.resume_step = options.tiers->resume_step;
  }
  TESSERA_ASSIGN_OR_RETURN(auto trainer, Trainer::Create(spec, coordinates, by_axis, data,
                                                         options.weights, device, state));
  if (options.prepare) TESSERA_RETURN_IF_ERROR(options.prepare(*trainer));
  Recorder recorder(index == 0 ? options.on_step : nullptr,
                    options.tiers ? options.tiers->suspend_after : std::nullopt);
  TESSERA_RETURN_IF_ERROR(trainer->Run(recorder));
  TESSERA_RETURN_IF_ERROR(CheckTraffic(index, recorder.steps));
  run.steps = recorder.steps;
  run.timeline = recorder.timeline;
  run.usage = device.arena().usage();
  if (tiers.host != nullptr) run.host_usage = tiers.host->arena().usage();
  run.peak_nvme_bytes = trainer->peak_nvme_bytes();
  run.suspended_step = trainer->suspended_step();
  if (run.suspended_step.has_value()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(trainer->ShareWeights([&]() -> absl::Status {
    if (index != 0) return absl::OkStatus();
    if (options.finish) TESSERA_RETURN_IF_ERROR(options.finish(*trainer));
    if (!options.collect_parameters) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(run.record.parameters, ReadParameters(*trainer));
    for (const TrainingRecord::Parameter& parameter : run.record.parameters) {
      run.parameters[parameter.name] = parameter.values;
    }
    for (const StepResult& step : recorder.steps) {
      if (step.step > 0) run.record.steps.push_back(step);
    }
    return absl::OkStatus();
  }));
  TESSERA_ASSIGN_OR_RETURN(run.sample, trainer->Sample(recorder));
  if (!options.collect_parameters) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(run.own, trainer->ReadOwnParameters());
  return absl::OkStatus();
}

absl::StatusOr<ParityRun> TrainInProcess(const v1::TrainingJobSpec& spec, const JobData& data,
                                         const ParityOptions& options) {
  const plan::MeshSize mesh = MeshOf(spec);
  const int size = mesh.world_size();
  InProcessHub hub;
  std::vector<Rank> ranks(size);
  std::vector<std::string> addresses;
  for (int i = 0; i < size; ++i) {
    TESSERA_ASSIGN_OR_RETURN(
        ranks[i].device,
        CpuDevice::Create(absl::StrCat("cpu:", i), options.device_bytes, options.num_threads));
    ranks[i].transport = hub.CreateTransport(*ranks[i].device);
    addresses.push_back(ranks[i].transport->address());
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      ranks[i].status = TrainRank(spec, data, options, addresses, i, *ranks[i].transport,
                                  *ranks[i].device, ranks[i].run);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) TESSERA_RETURN_IF_ERROR(rank.status);
  for (int i = 1; i < size; ++i) {
    TESSERA_RETURN_IF_ERROR(CheckSameSteps(ranks[0].run.steps, ranks[i].run.steps, i));
    // Ranks of a zero group hold the same weights.
    const int first = plan::GroupOf(mesh, i, plan::GroupAxis::kZero).members.front();
    if (ranks[i].run.own != ranks[first].run.own) {
      return absl::InternalError(absl::StrCat("rank ", i, " disagrees on a parameter"));
    }
  }
  for (const Rank& rank : ranks) {
    ranks[0].run.usages.push_back(rank.run.usage);
    ranks[0].run.host_usages.push_back(rank.run.host_usage);
    ranks[0].run.peaks_nvme_bytes.push_back(rank.run.peak_nvme_bytes);
    if (rank.run.suspended_step != ranks[0].run.suspended_step) {
      return absl::InternalError("ranks were suspended after different steps");
    }
  }
  return std::move(ranks[0].run);
}

v1::TrainingJobSpec SmallSpec() {
  v1::TrainingJobSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_GPT2);
  model.set_vocab_size(257);
  model.set_context_length(41);
  model.set_layers(2);
  model.set_heads(3);
  model.set_hidden_size(24);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(37);
  spec.mutable_learning_rate()->set_peak(3e-3);
  spec.mutable_learning_rate()->set_warmup_steps(3);
  spec.mutable_batch()->set_global_batch_size(12);
  spec.set_steps(10);
  return spec;
}

}  // namespace tessera
