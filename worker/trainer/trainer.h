// Trains one job's rank from the first step to the last.
#ifndef TESSERA_WORKER_TRAINER_TRAINER_H_
#define TESSERA_WORKER_TRAINER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "plan/mesh.h"
#include "plan/timeline.h"
#include "proto/tessera/v1/assignment.pb.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/comm/communicator.h"
#include "worker/data/token_source.h"
#include "worker/model/model_config.h"
#include "worker/offload/tier_meter.h"
#include "worker/offload/worker_tiers.h"

namespace tessera {

// The groups of this rank, by axis. Owned by the caller; every one is set, sizes of 1 included.
struct MeshGroups {
  Communicator* dp = nullptr;
  Communicator* cp = nullptr;
  Communicator* pp = nullptr;
  Communicator* tp = nullptr;
  Communicator* zero = nullptr;  // dp x cp
};

// What a rank's communicator of one group counted in a step, and what was predicted for it
// (plan/step_traffic.h).
struct TrafficLine {
  plan::GroupAxis axis = plan::GroupAxis::kDp;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t calls = 0;
  int64_t bytes = 0;
  int64_t predicted_calls = 0;
  int64_t predicted_bytes = 0;
  double wait_seconds = 0;  // spent in it, waiting for other ranks included
};

// A step, but for seconds, traffic and tiers the same on every rank.
struct StepResult {
  int64_t step = 0;          // completed optimizer steps; 0: the evaluation before the first
  double loss = 0;           // nats per valid target of the global batch
  double gradient_norm = 0;  // of the reduced gradient, before clipping after_reduce
  double learning_rate = 0;
  int64_t tokens = 0;         // input tokens over all ranks
  double seconds = 0;         // wall time of the step, evaluation excluded
  int64_t skipped_steps = 0;  // so far: the gradient was not finite, no weight has changed; fp16
  std::optional<double> loss_scale;  // with which the step was computed; fp16 only
  std::optional<double> validation_loss;
  std::vector<TrafficLine> traffic;  // of this rank, evaluation excluded
  TierCounts host, nvme;             // likewise
};

// What one rank holds of one unit.
struct ShardInfo {
  std::string unit;  // "embedding", "layer.3", "head"
  std::string kind;  // "parameters", "gradients", "optimizer"
  int64_t offset_elements = 0;
  int64_t size_elements = 0;
  int64_t size_bytes = 0;
  plan::Tier tier = plan::Tier::kDevice;
};

// Where a job's state may be outside of the device.
struct StateOptions {
  WorkerTiers tiers;
  std::string job_uid;  // names its state in the nvme tier
  // Go on from the state that the nvme tier holds after so many steps; absent: from the start, and
  // what it holds of the job is removed.
  std::optional<int64_t> resume_step;
};

class Trainer;

// Called on the training thread.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // Polled at every micro-batch and evaluation sequence; an error ends the run with it.
  virtual absl::Status CheckStop() = 0;
  // After every step, and once with step 0 when an evaluation comes before the first.
  virtual void OnStep(const StepResult& result) = 0;
  // Optimizer step in progress, from 1.
  virtual void OnStepBegin(int64_t step) = 0;
  // Asked on global_rank 0 between two steps: whether OnWeights should be called.
  virtual bool WantsWeights() { return false; }
  // On global_rank 0, after `step` whole steps: the trainer's ReadElements works for all weights
  // until it returns. Other ranks serve it meanwhile.
  virtual void OnWeights(int64_t /*step*/, const Trainer& /*trainer*/) {}
  // Asked on global_rank 0 between two steps: whether the run should end with its state saved.
  virtual bool WantsSuspend() { return false; }
  // On ranks that could not save their state: all go on training.
  virtual void OnSuspendFailed(const absl::Status& /*status*/) {}
  // On global_rank 0, after the step that spec.trace names: how its pipeline ran. An error ends the
  // run with it.
  virtual absl::Status OnTimeline(const plan::Timeline& /*timeline*/) { return absl::OkStatus(); }
};

// Used by one thread. Holds all device memory of the rank; the destructor gives it back.
class Trainer {
 public:
  // Builds model, optimizer and buffers; from the start without communication. INVALID_ARGUMENT or
  // UNIMPLEMENTED with the field's path for a spec that this version cannot train;
  // RESOURCE_EXHAUSTED from the arena. weights: where training starts, as OpenInitialWeights gives
  // them; null: random, from spec.seeds.init; with state.resume_step they are not read, and ranks
  // communicate. device, groups, data and tiers outlive the trainer. Errors of a tier have reason
  // TIER_FAILED.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(
      const v1::TrainingJobSpec& spec, const v1::MeshCoordinates& coordinates,
      const MeshGroups& groups, const JobData& data, const WeightReader* weights, Device& device,
      const StateOptions& state = {});
  virtual ~Trainer() = default;

  // All remaining steps, or until the run is suspended. Errors of communicators, tiers and the
  // observer pass through.
  virtual absl::Status Run(TrainingObserver& observer) = 0;
  // After Run: it was suspended, and the nvme tier of every rank holds its state after so many
  // steps.
  virtual std::optional<int64_t> suspended_step() const = 0;
  // spec.sample from the current weights, on global_rank 0; empty elsewhere, and where the spec
  // asks for none. All ranks call it.
  virtual absl::StatusOr<std::string> Sample(TrainingObserver& observer) = 0;
  // All ranks call it: body runs on global_rank 0, where ReadElements and Export work for all
  // weights until it returns, with its status; the other ranks serve it.
  virtual absl::Status ShareWeights(const std::function<absl::Status()>& body) = 0;
  // Inside ShareWeights: writes the weights as a Hugging Face directory, as spec.export asks.
  // Errors of WriteHfFolder.
  virtual absl::Status Export(const std::string& folder) = 0;
  // The same in dtype, whatever the spec says.
  virtual absl::Status ExportAs(const std::string& folder, DType dtype) = 0;
  virtual std::vector<ShardInfo> shards() const = 0;
  // Device memory that a step takes for a time besides what is held between steps, at most, bytes.
  virtual int64_t momentary_bytes() const = 0;
  // Of the nvme tier, so far the most at once.
  virtual int64_t peak_nvme_bytes() const = 0;

  virtual const ModelConfig& model() const = 0;
  virtual DType dtype() const = 0;  // of parameters
  // Elements of a whole parameter from `begin` on, in fp32 (the master's). NOT_FOUND for a wrong
  // name. REQUIRES: inside ShareWeights or OnWeights, or pp and tp are 1; in range.
  virtual absl::Status ReadElements(absl::string_view name, int64_t begin,
                                    absl::Span<float> values) const = 0;

  // Names of the whole model's parameters in forward order (Hugging Face's, of GPT-2 without
  // "transformer."), and one parameter's values, fp32 (the master's), in the layout of
  // docs/numerics.md. REQUIRES as ReadElements.
  virtual std::vector<std::string> parameter_names() const = 0;
  virtual absl::StatusOr<std::vector<float>> ReadParameter(const std::string& name) const = 0;
  // The same of AdamW's running mean of its gradient (exp_avg).
  virtual absl::StatusOr<std::vector<float>> ReadExpAvg(const std::string& name) const = 0;
  // Replaces what this rank holds of one parameter, given whole; all ranks call it.
  // INVALID_ARGUMENT for a wrong size, NOT_FOUND for a wrong name.
  virtual absl::Status WriteParameter(const std::string& name,
                                      const std::vector<float>& values) = 0;
  // The weights that this rank holds whole, in fp32, by name; for comparing ranks that should hold
  // the same.
  virtual absl::StatusOr<std::map<std::string, std::vector<float>>> ReadOwnParameters() const = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_TRAINER_H_
