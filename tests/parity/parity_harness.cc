#include "tests/parity/parity_harness.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/status_macros.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

class Recorder : public TrainingObserver {
 public:
  explicit Recorder(std::function<void(const StepResult&)> on_step)
      : on_step_(std::move(on_step)) {}
  absl::Status CheckStop() override { return absl::OkStatus(); }
  void OnStep(const StepResult& result) override {
    steps.push_back(result);
    if (on_step_) on_step_(result);
  }
  void OnStepBegin(int64_t) override {}
  std::vector<StepResult> steps;

 private:
  const std::function<void(const StepResult&)> on_step_;
};

GroupSpec MakeGroup(const std::string& name, int rank, const std::vector<std::string>& addresses,
                    const std::vector<int>& members) {
  GroupSpec group;
  group.name = name;
  group.job_uid = "parity";
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank) group.group_rank = static_cast<int>(i);
    group.members.push_back(
        {members[i], absl::StrCat("workers/w", members[i]), addresses[members[i]]});
  }
  return group;
}

struct Rank {
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<Transport> transport;
  absl::Status status;
  ParityRun run;
};

absl::Status RunRank(const v1::TrainingJobSpec& spec, const JobData& data,
                     const ParityOptions& options, const std::vector<std::string>& addresses,
                     int index, Rank& rank) {
  std::vector<int> all;
  for (size_t i = 0; i < addresses.size(); ++i) all.push_back(static_cast<int>(i));
  auto join = [&](const std::string& name, const std::vector<int>& members) {
    return rank.transport->Join(MakeGroup(name, index, addresses, members));
  };
  TESSERA_ASSIGN_OR_RETURN(auto dp, join("dp", all));
  TESSERA_ASSIGN_OR_RETURN(auto zero, join("zero", all));
  TESSERA_ASSIGN_OR_RETURN(auto cp, join(absl::StrCat("cp", index), {index}));
  TESSERA_ASSIGN_OR_RETURN(auto pp, join(absl::StrCat("pp", index), {index}));
  TESSERA_ASSIGN_OR_RETURN(auto tp, join(absl::StrCat("tp", index), {index}));
  const MeshGroups groups{dp.get(), cp.get(), pp.get(), tp.get(), zero.get()};
  v1::MeshCoordinates coordinates;
  coordinates.set_global_rank(index);
  coordinates.set_dp_rank(index);
  TESSERA_ASSIGN_OR_RETURN(auto trainer, Trainer::Create(spec, coordinates, groups, data,
                                                         options.weights, *rank.device));
  if (options.prepare) TESSERA_RETURN_IF_ERROR(options.prepare(*trainer));
  Recorder recorder(index == 0 ? options.on_step : nullptr);
  TESSERA_RETURN_IF_ERROR(trainer->Run(recorder));
  rank.run.steps = recorder.steps;
  rank.run.usage = rank.device->arena().usage();
  if (index == 0) {
    if (options.finish) TESSERA_RETURN_IF_ERROR(options.finish(*trainer));
    TESSERA_ASSIGN_OR_RETURN(rank.run.sample, trainer->Sample(recorder));
  }
  if (!options.collect_parameters) return absl::OkStatus();
  for (const std::string& name : trainer->parameter_names()) {
    TESSERA_ASSIGN_OR_RETURN(rank.run.parameters[name], trainer->ReadParameter(name));
  }
  return absl::OkStatus();
}

bool IsSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

absl::Status CheckAgreement(const ParityRun& first, const ParityRun& other, size_t index) {
  for (size_t i = 0; i < first.steps.size(); ++i) {
    const StepResult &a = first.steps[i], &b = other.steps.at(i);
    if (!IsSame(a.loss, b.loss) || !IsSame(a.gradient_norm, b.gradient_norm) ||
        a.skipped_steps != b.skipped_steps || a.loss_scale != b.loss_scale ||
        a.validation_loss != b.validation_loss) {
      return absl::InternalError(absl::StrCat("rank ", index, " disagrees on step ", a.step));
    }
  }
  if (first.parameters != other.parameters) {
    return absl::InternalError(absl::StrCat("rank ", index, " disagrees on a parameter"));
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

absl::StatusOr<ParityRun> TrainInProcess(const v1::TrainingJobSpec& spec, const JobData& data,
                                         const ParityOptions& options) {
  const int size = std::max(1, spec.mesh().dp());
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
    threads.emplace_back(
        [&, i] { ranks[i].status = RunRank(spec, data, options, addresses, i, ranks[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) TESSERA_RETURN_IF_ERROR(rank.status);
  for (int i = 1; i < size; ++i) {
    TESSERA_RETURN_IF_ERROR(CheckAgreement(ranks[0].run, ranks[i].run, i));
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
