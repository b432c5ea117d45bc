#include "worker/trainer/mesh_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/sequence_split.h"
#include "worker/trainer/ledger_request.h"
#include "worker/trainer/planted_error.h"
#include "worker/trainer/step_timeline.h"

namespace tessera {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Micro-batches of one pass of evaluation: in a pipeline as many as keep its stages busy.
int64_t EvaluationMicroBatches(const TrainingConfig& config) {
  return config.mesh.pp == 1 ? 1 : config.micro_batches;
}

// The weights are still those of the step before.
absl::Status NotFinite(int64_t step, absl::string_view what, double value) {
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, ": ", what, " is ", value, "; a lower learning rate may help"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> MeshTrainer::Create(
    const TrainingConfig& config, const MeshGroups& groups, const JobData& data,
    const WeightReader* weights, Device& device, const StateOptions& state) {
  std::unique_ptr<MeshTrainer> trainer(new MeshTrainer(config, groups, data, device));
  const int64_t before = device.arena().usage().current_bytes;
  TESSERA_RETURN_IF_ERROR(trainer->Allocate(state));
  const int64_t held = device.arena().usage().current_bytes - before;
  const int64_t needed = plan::PredictLedger(MakeLedgerRequest(config, 0)).needed_bytes();
  trainer->momentary_bytes_ = std::max<int64_t>(needed - held, 0);
  if (state.resume_step.has_value()) {
    TESSERA_RETURN_IF_ERROR(trainer->Resume(*state.resume_step));
  } else {
    TESSERA_RETURN_IF_ERROR(trainer->FillInitialWeights(weights));
  }
  return trainer;
}

MeshTrainer::MeshTrainer(const TrainingConfig& config, const MeshGroups& groups,
                         const JobData& data, Device& device)
    : config_(config),
      groups_(groups),
      data_(data),
      device_(device),
      order_(data.train->num_tokens(), static_cast<int32_t>(config.sequence_length),
             config.data_seed),
      positions_(plan::PositionsOf(config.mesh.cp, config.at.cp_rank,
                                   static_cast<int>(config.sequence_length))),
      traffic_(config, groups),
      batch_(config.local_batch_size(), config.sequence_length, positions_),
      evaluation_batch_(config.micro_batch_size() * EvaluationMicroBatches(config),
                        config.sequence_length, positions_) {
  if (config.loss_scale) loss_scaler_.emplace(*config.loss_scale);
}

absl::Status MeshTrainer::Allocate(const StateOptions& state) {
  TESSERA_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  TESSERA_RETURN_IF_ERROR(AllocateState(state));
  GradientSyncOptions sync;
  sync.part = config_.part;
  sync.kv_heads = config_.model.num_kv_heads();
  sync.check_replicated = config_.check_replicated_gradients;
  TESSERA_ASSIGN_OR_RETURN(
      sync_,
      GradientSync::Create(sync, *store_, {*groups_.zero, *groups_.tp, *groups_.pp}, device_));
  store_->gradients().SetBeforeReduction([this](int unit) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(sync_->SumOverTp(step_, unit, *stream_));
    if (config_.mesh.world_size() == 1) return absl::OkStatus();
    return PlantInGradients(config_.at, unit, *store_, *stream_);
  });
  TESSERA_ASSIGN_OR_RETURN(shared_,
                           SharedWeights::Create(config_.model, *store_, *optimizer_, *groups_.zero,
                                                 *groups_.pp, *groups_.tp, device_));
  TESSERA_RETURN_IF_ERROR(AllocateReducers());
  return AllocateStage();
}

absl::Status MeshTrainer::AllocateState(const StateOptions& state) {
  std::vector<UnitSpec> units = LocalUnits(config_.model, config_.part);
  std::vector<int64_t> elements;
  for (const UnitSpec& unit : units) {
    elements.push_back(MakeUnitLayout(unit, config_.zero_group_size()).size_elements);
  }
  TESSERA_ASSIGN_OR_RETURN(
      offload_, RankOffload::Create(config_.offload, elements, state.job_uid, state.tiers));
  TESSERA_ASSIGN_OR_RETURN(store_, ZeroStore::Create(std::move(units), config_.zero, groups_.zero,
                                                     device_, *stream_, offload_->unit_tiers()));
  ZeroGroups groups{groups_.zero, {}};
  for (Communicator* group : {groups_.pp, groups_.tp}) {
    if (group->size() > 1) groups.model.push_back(group);
  }
  TESSERA_ASSIGN_OR_RETURN(
      optimizer_, ZeroOptimizer::Create(config_.optimizer, *store_, groups, device_, *stream_));
  state_ = std::make_unique<RankState>(*store_, *optimizer_, *offload_, *stream_);
  optimizer_->SetHooks({[this] { return state_->Begin(step_); },
                        [this](int unit) { return state_->SaveUnit(unit); }});
  return absl::OkStatus();
}

absl::Status MeshTrainer::AllocateReducers() {
  std::vector<Communicator*> with_losses = {groups_.zero}, all;
  if (config_.mesh.pp > 1) with_losses.push_back(groups_.pp);
  for (Communicator* group : {groups_.zero, groups_.pp, groups_.tp}) {
    if (group->size() > 1) all.push_back(group);
  }
  TESSERA_ASSIGN_OR_RETURN(counts_, LossReducer::Create({groups_.dp}, device_));
  TESSERA_ASSIGN_OR_RETURN(losses_, LossReducer::Create(with_losses, device_));
  TESSERA_ASSIGN_OR_RETURN(wishes_, LossReducer::Create(all, device_));
  return absl::OkStatus();
}

absl::Status MeshTrainer::AllocateStage() {
  TESSERA_ASSIGN_OR_RETURN(std::vector<plan::StageActions> training,
                           plan::MakeSchedule(config_.schedule));
  plan::ScheduleOptions evaluation = config_.schedule;
  evaluation.micro_batches = static_cast<int>(EvaluationMicroBatches(config_));
  TESSERA_ASSIGN_OR_RETURN(std::vector<plan::StageActions> forward,
                           plan::MakeForwardSchedule(evaluation));
  const int stage = config_.at.pp_rank;
  actions_ = std::move(training);
  training_ = std::make_unique<PipelineRunner>(actions_[stage], *groups_.pp);
  evaluation_ = std::make_unique<PipelineRunner>(std::move(forward[stage]), *groups_.pp);

  StageOptions options;
  ActivationOptions& activations = options.activations;
  activations.batch = config_.micro_batch_size();
  activations.time = config_.local_sequence_length();
  activations.backward = true;
  activations.weights_apart = config_.schedule.schedule == plan::PipelineSchedule::kZeroBubbleH1;
  activations.dtype = config_.dtype;
  activations.recompute = config_.recompute;
  if (config_.offload.activations) {
    activations.waiting.host = offload_->unit_tiers().host;
    activations.waiting.on_copy = [this](int64_t size_bytes, bool to_host) {
      TierCounts& host = offload_->meter().of(plan::Tier::kHost);
      (to_host ? host.written_bytes : host.read_bytes) += size_bytes;
    };
  }
  if (config_.mesh.cp > 1) {
    activations.positions = positions_;
    PlantInPositions(config_.at, activations.positions);
  }
  activations.context_parallel = config_.context_parallel;
  activations.cp_group = groups_.cp;
  for (int chunk = 0; chunk < config_.schedule.chunks; ++chunk) {
    options.slots.push_back(std::max(PeakMicroBatches(training_->actions(), chunk), 1));
  }
  const TensorParallel tp(config_.part.tp, PlantInGroup(*groups_.tp));
  TESSERA_ASSIGN_OR_RETURN(stage_, TransformerStage::Create(config_.model, config_.part, options,
                                                            *store_, tp, device_, *stream_));
  // Taken now, so that a job that starts has all the memory that it will need.
  if (!config_.takes_part_in_sample()) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(sampler_, MeshSampler::Create(config_, *store_, {groups_.pp, groups_.cp},
                                                         *groups_.tp, device_, *stream_));
  return absl::OkStatus();
}

absl::Status MeshTrainer::Run(TrainingObserver& observer) {
  const int64_t every = config_.evaluate_every_steps;
  if (every > 0 && completed_ == 0) {
    StepResult start;
    TESSERA_ASSIGN_OR_RETURN(start.validation_loss, Evaluate(observer));
    observer.OnStep(start);
  }
  while (completed_ < config_.steps) {
    const int64_t step = completed_ + 1;
    traffic_.Begin();
    TESSERA_RETURN_IF_ERROR(ServeWishes(completed_, observer));
    if (suspended_step_.has_value()) return absl::OkStatus();
    observer.OnStepBegin(step);
    offload_->meter().Reset();
    TESSERA_ASSIGN_OR_RETURN(StepResult result, Step(step, observer));
    result.traffic = traffic_.End();
    result.host = offload_->meter().host();
    result.nvme = offload_->meter().nvme();
    if (step == config_.trace_step) TESSERA_RETURN_IF_ERROR(ShareTimeline(step, observer));
    if (every > 0 && (step % every == 0 || step == config_.steps)) {
      TESSERA_ASSIGN_OR_RETURN(result.validation_loss, Evaluate(observer));
    }
    observer.OnStep(result);
    // All ranks have gone on from what was saved.
    if (std::exchange(forgets_saved_, false)) TESSERA_RETURN_IF_ERROR(state_->Forget());
  }
  return state_->Settle();
}

absl::Status MeshTrainer::ServeWishes(int64_t step, TrainingObserver& observer) {
  constexpr int64_t kWeights = 1, kSuspend = 2;
  int64_t wanted = 0;
  if (config_.at.global_rank == 0) {
    wanted = (observer.WantsWeights() ? kWeights : 0) + (observer.WantsSuspend() ? kSuspend : 0);
  }
  if (config_.mesh.world_size() > 1) {
    TESSERA_ASSIGN_OR_RETURN(wanted, wishes_->Reduce(wanted, *stream_));
  }
  if (wanted == 0) return absl::OkStatus();
  traffic_.Pause();
  absl::Status status;
  if ((wanted & kWeights) != 0) {
    status = ShareWeights([&] {
      observer.OnWeights(step, *this);
      return absl::OkStatus();
    });
  }
  if (status.ok() && (wanted & kSuspend) != 0) status = Suspend(observer);
  traffic_.Resume();
  return status;
}

absl::StatusOr<StepResult> MeshTrainer::Step(int64_t step, TrainingObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  LoadStep(step);
  ZeroOptimizer::StepInput input;
  input.step = updates_ + 1;
  input.learning_rate = LearningRateAt(config_.learning_rate, step);
  input.local_valid_targets = batch_.valid_targets();
  TESSERA_ASSIGN_OR_RETURN(input.global_valid_targets,
                           counts_->Reduce(input.local_valid_targets, *stream_));
  if (input.global_valid_targets == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, ": no target of the global batch carries a loss"));
  }
  TESSERA_RETURN_IF_ERROR(state_->CheckSpace());
  TESSERA_RETURN_IF_ERROR(PlantInMemory(step, device_, planted_));
  store_->gradients().Clear();
  step_ = step;
  if (loss_scaler_) input.loss_scale = loss_scaler_->scale();
  const float scale =
      static_cast<float>(input.loss_scale / static_cast<double>(input.global_valid_targets));
  LossTotal local;
  const MicroBatchIo io = IoOf(batch_, local);
  stage_->BeginTraining(&io, scale);
  TESSERA_RETURN_IF_ERROR(training_->Run(
      *stage_, [&] { return observer.CheckStop(); },
      step == config_.trace_step ? &measured_ : nullptr, *stream_));
  TESSERA_RETURN_IF_ERROR(store_->Settle());
  TESSERA_ASSIGN_OR_RETURN(const LossTotal total, losses_->Reduce(local, *stream_));
  StepResult result;
  result.step = step;
  result.loss = total.Mean();
  result.learning_rate = input.learning_rate;
  if (!loss_scaler_ && !std::isfinite(result.loss)) return NotFinite(step, "loss", result.loss);
  // Every rank's last step is committed before any rank learns the norm, and begins the next.
  TESSERA_RETURN_IF_ERROR(state_->Settle());
  // Clipping before the reduction is by the norm of gradients that are whole.
  if (config_.zero.defers_reduction) TESSERA_RETURN_IF_ERROR(sync_->SumTied(*stream_));
  TESSERA_RETURN_IF_ERROR(optimizer_->ReduceGradients(input, *stream_));
  if (!config_.zero.defers_reduction) TESSERA_RETURN_IF_ERROR(sync_->SumTied(*stream_));
  TESSERA_ASSIGN_OR_RETURN(result.gradient_norm, optimizer_->Step(input, *stream_));
  const bool skipped = !std::isfinite(result.gradient_norm);
  if (loss_scaler_) {
    result.loss_scale = loss_scaler_->scale();
    loss_scaler_->Update(skipped);
    if (loss_scaler_->is_exhausted()) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", step, ": the gradient overflows fp16 at the smallest loss scale, ",
                       *result.loss_scale, "; precision bf16 or a lower learning rate may help"));
    }
  } else if (skipped) {
    return NotFinite(step, "gradient norm", result.gradient_norm);
  }
  completed_ = step;
  if (!skipped) {
    ++updates_;
    state_->StartCommit(Record());
  }
  result.skipped_steps = step - updates_;
  TESSERA_RETURN_IF_ERROR(stream_->Synchronize());
  result.tokens = config_.global_batch_size * config_.sequence_length;
  result.seconds = SecondsSince(start);
  return result;
}

void MeshTrainer::LoadStep(int64_t step) {
  const int64_t first =
      (step - 1) * config_.global_batch_size + config_.at.dp_rank * config_.local_batch_size();
  for (int64_t i = 0; i < config_.local_batch_size(); ++i) {
    batch_.Fill(i, *data_.train, order_.WindowBegin(first + i), config_.ignore_target_ids);
  }
}

MicroBatchIo MeshTrainer::IoOf(HostBatch& batch, LossTotal& total) const {
  const int64_t size = config_.micro_batch_size(), time = config_.local_sequence_length();
  MicroBatchIo io;
  io.ids = [&batch, size](int micro_batch) { return batch.inputs(micro_batch * size, size); };
  io.targets = [&batch, size](int micro_batch) { return batch.targets(micro_batch * size, size); };
  io.on_losses = [&batch, &total, size, time](int micro_batch, absl::Span<const float> losses) {
    for (int64_t i = 0; i < size; ++i) {
      total.AddSequence(losses.subspan(i * time, time),
                        batch.own_valid_targets(micro_batch * size + i));
    }
  };
  return io;
}

absl::Status MeshTrainer::ShareTimeline(int64_t step, TrainingObserver& observer) {
  const plan::Coordinates& at = config_.at;
  if (at.dp_rank != 0 || at.cp_rank != 0 || at.tp_rank != 0) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(
      const plan::Timeline timeline,
      GatherTimeline(actions_, std::exchange(measured_, {}),
                     absl::StrCat(plan::PipelineScheduleName(config_.schedule.schedule), ", step ",
                                  step, ", measured"),
                     *groups_.pp, device_, *stream_));
  return at.global_rank == 0 ? observer.OnTimeline(timeline) : absl::OkStatus();
}

absl::StatusOr<double> MeshTrainer::Evaluate(TrainingObserver& observer) {
  const int64_t time = config_.sequence_length, dp = config_.mesh.dp;
  int64_t windows = (data_.validation->num_tokens() - 1) / time;
  if (config_.evaluation_sequences) windows = std::min(windows, *config_.evaluation_sequences);
  const int64_t sequences = config_.micro_batch_size() * EvaluationMicroBatches(config_);
  LossTotal local;
  const MicroBatchIo io = IoOf(evaluation_batch_, local);
  // dp_rank r has windows r, r + dp, ...; the last passes are filled up with empty sequences: all
  // ranks ask for the same weights.
  const int64_t passes = (windows + dp * sequences - 1) / (dp * sequences);
  int64_t window = config_.at.dp_rank;
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (int64_t i = 0; i < sequences; ++i, window += dp) {
      TESSERA_RETURN_IF_ERROR(observer.CheckStop());
      if (window < windows) {
        evaluation_batch_.Fill(i, *data_.validation, window * time, config_.ignore_target_ids);
      } else {
        evaluation_batch_.FillEmpty(i);
      }
    }
    stage_->BeginEvaluation(&io);
    TESSERA_RETURN_IF_ERROR(evaluation_->Run(
        *stage_, [&] { return observer.CheckStop(); }, nullptr, *stream_));
  }
  TESSERA_ASSIGN_OR_RETURN(const LossTotal total, losses_->Reduce(local, *stream_));
  if (total.valid_targets() == 0) {
    return absl::FailedPreconditionError("evaluation: no validation target carries a loss");
  }
  return total.Mean();
}

absl::StatusOr<std::string> MeshTrainer::Sample(TrainingObserver& observer) {
  if (sampler_ == nullptr) return std::string();
  TESSERA_ASSIGN_OR_RETURN(std::string text,
                           sampler_->Sample([&] { return observer.CheckStop(); }));
  return config_.at.global_rank == 0 ? text : std::string();
}

}  // namespace tessera
