#include "worker/trainer/mesh_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"
#include "plan/sequence_split.h"
#include "worker/checkpoint/weight_writer.h"
#include "worker/model/initial_weights.h"
#include "worker/model/units.h"
#include "worker/trainer/ledger_request.h"
#include "worker/trainer/planted_error.h"
#include "worker/trainer/step_timeline.h"

namespace tessera {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Parameters are read and written by pieces of this.
constexpr int64_t kPieceElements = 1 << 20;

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

absl::StatusOr<std::unique_ptr<Trainer>> MeshTrainer::Create(const TrainingConfig& config,
                                                             const MeshGroups& groups,
                                                             const JobData& data,
                                                             const WeightReader* weights,
                                                             Device& device) {
  std::unique_ptr<MeshTrainer> trainer(new MeshTrainer(config, groups, data, device));
  const int64_t before = device.arena().usage().current_bytes;
  TESSERA_RETURN_IF_ERROR(trainer->Allocate());
  const int64_t held = device.arena().usage().current_bytes - before;
  const int64_t needed = plan::PredictLedger(MakeLedgerRequest(config, 0)).needed_bytes();
  trainer->momentary_bytes_ = std::max<int64_t>(needed - held, 0);
  TESSERA_RETURN_IF_ERROR(trainer->FillInitialWeights(weights));
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

absl::Status MeshTrainer::Allocate() {
  TESSERA_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  TESSERA_ASSIGN_OR_RETURN(
      store_, ZeroStore::Create(LocalUnits(config_.model, config_.part), config_.zero, groups_.zero,
                                device_, *stream_));
  ZeroGroups zero_groups{groups_.zero, {}};
  std::vector<Communicator*> with_losses = {groups_.zero}, all;
  if (config_.mesh.pp > 1) with_losses.push_back(groups_.pp);
  for (Communicator* group : {groups_.pp, groups_.tp}) {
    if (group->size() > 1) zero_groups.model.push_back(group);
  }
  for (Communicator* group : {groups_.zero, groups_.pp, groups_.tp}) {
    if (group->size() > 1) all.push_back(group);
  }
  TESSERA_ASSIGN_OR_RETURN(optimizer_, ZeroOptimizer::Create(config_.optimizer, *store_,
                                                             zero_groups, device_, *stream_));
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
  TESSERA_ASSIGN_OR_RETURN(counts_, LossReducer::Create({groups_.dp}, device_));
  TESSERA_ASSIGN_OR_RETURN(losses_, LossReducer::Create(with_losses, device_));
  TESSERA_ASSIGN_OR_RETURN(wishes_, LossReducer::Create(all, device_));
  return AllocateStage();
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

template <typename Body>
absl::Status MeshTrainer::ForPieces(const Body& body) {
  std::vector<float> values(kPieceElements);
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const std::vector<ParameterSpec>& parameters = store_->units()[unit].parameters;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      TESSERA_RETURN_IF_ERROR(ForEachRun(parameters[i].slice, [&](SliceRun run) -> absl::Status {
        while (run.count > 0) {
          const int64_t size = std::min(kPieceElements, run.count);
          TESSERA_RETURN_IF_ERROR(body(ParameterId{unit, i}, parameters[i], run,
                                       absl::MakeSpan(values).subspan(0, size)));
          run = {run.local_begin + size, run.whole_begin + size, run.count - size};
        }
        return absl::OkStatus();
      }));
    }
  }
  return absl::OkStatus();
}

absl::Status MeshTrainer::FillInitialWeights(const WeightReader* weights) {
  return ForPieces([&](ParameterId id, const ParameterSpec& parameter, const SliceRun& run,
                       absl::Span<float> values) {
    if (weights != nullptr) {
      TESSERA_RETURN_IF_ERROR(weights->ReadParameter(parameter.name, run.whole_begin, values));
    } else {
      FillInitialValues(parameter, config_.init_seed, run.whole_begin, values);
    }
    return optimizer_->Write(id, run.local_begin, values, *stream_);
  });
}

absl::Status MeshTrainer::ShareWeights(const std::function<absl::Status()>& body) {
  return shared_->Share(body, *stream_);
}

absl::Status MeshTrainer::Export(const std::string& folder) {
  return ExportAs(folder, config_.export_options ? config_.export_options->dtype : config_.dtype);
}

absl::Status MeshTrainer::ExportAs(const std::string& folder, DType dtype) {
  HfConfig config;
  config.model = config_.model;
  config.model.kv_heads = config_.model.num_kv_heads();
  HfWriteOptions options;
  options.dtype = dtype;
  return WriteHfFolder(folder, config, options,
                       [this](absl::string_view name, int64_t begin, absl::Span<float> values) {
                         return ReadElements(name, begin, values);
                       });
}

absl::Status MeshTrainer::ReadElements(absl::string_view name, int64_t begin,
                                       absl::Span<float> values) const {
  return shared_->Read(ParameterState::kMaster, name, begin, values, *stream_);
}

absl::Status MeshTrainer::Run(TrainingObserver& observer) {
  const int64_t every = config_.evaluate_every_steps;
  if (every > 0) {
    StepResult start;
    TESSERA_ASSIGN_OR_RETURN(start.validation_loss, Evaluate(observer));
    observer.OnStep(start);
  }
  for (int64_t step = 1; step <= config_.steps; ++step) {
    traffic_.Begin();
    TESSERA_RETURN_IF_ERROR(OfferWeights(step - 1, observer));
    observer.OnStepBegin(step);
    TESSERA_ASSIGN_OR_RETURN(StepResult result, Step(step, observer));
    result.traffic = traffic_.End();
    if (step == config_.trace_step) TESSERA_RETURN_IF_ERROR(ShareTimeline(step, observer));
    if (every > 0 && (step % every == 0 || step == config_.steps)) {
      TESSERA_ASSIGN_OR_RETURN(result.validation_loss, Evaluate(observer));
    }
    observer.OnStep(result);
  }
  return absl::OkStatus();
}

absl::Status MeshTrainer::OfferWeights(int64_t step, TrainingObserver& observer) {
  int64_t wanted = config_.at.global_rank == 0 && observer.WantsWeights() ? 1 : 0;
  if (config_.is_split()) {
    TESSERA_ASSIGN_OR_RETURN(wanted, wishes_->Reduce(wanted, *stream_));
  }
  if (wanted == 0) return absl::OkStatus();
  traffic_.Pause();
  absl::Status status = ShareWeights([&] {
    observer.OnWeights(step, *this);
    return absl::OkStatus();
  });
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
  if (!skipped) ++updates_;
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

std::vector<ShardInfo> MeshTrainer::shards() const {
  std::vector<ShardInfo> shards;
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const UnitLayout& layout = store_->layout(unit);
    auto add = [&](const char* kind, const ElementRange& held, int64_t element_bytes) {
      shards.push_back(
          {store_->units()[unit].name, kind, held.begin, held.count, held.count * element_bytes});
    };
    add("parameters", store_->parameters().held(unit), DTypeSizeBytes(config_.dtype));
    add("gradients",
        config_.zero.zero_stage < 2 ? layout.whole() : layout.shard(groups_.zero->group_rank()),
        DTypeSizeBytes(config_.gradient_dtype));
    add("optimizer", optimizer_->held(unit), optimizer_->bytes_per_element());
  }
  return shards;
}

std::vector<std::string> MeshTrainer::parameter_names() const { return shared_->names(); }

absl::StatusOr<std::vector<float>> MeshTrainer::ReadParameter(const std::string& name) const {
  return ReadState(ParameterState::kMaster, name);
}

absl::StatusOr<std::vector<float>> MeshTrainer::ReadExpAvg(const std::string& name) const {
  return ReadState(ParameterState::kExpAvg, name);
}

absl::StatusOr<std::vector<float>> MeshTrainer::ReadState(ParameterState state,
                                                          const std::string& name) const {
  TESSERA_ASSIGN_OR_RETURN(const Shape shape, shared_->ShapeOf(name));
  std::vector<float> values(shape.num_elements());
  TESSERA_RETURN_IF_ERROR(shared_->Read(state, name, 0, absl::MakeSpan(values), *stream_));
  return values;
}

absl::Status MeshTrainer::WriteParameter(const std::string& name,
                                         const std::vector<float>& values) {
  TESSERA_ASSIGN_OR_RETURN(const Shape shape, shared_->ShapeOf(name));
  if (static_cast<int64_t>(values.size()) != shape.num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", name, "\": ", values.size(),
                                                   " values: must be ", shape.num_elements()));
  }
  return ForPieces([&](ParameterId id, const ParameterSpec& parameter, const SliceRun& run,
                       absl::Span<float> piece) {
    if (parameter.name != name) return absl::OkStatus();
    return optimizer_->Write(id, run.local_begin,
                             absl::MakeConstSpan(values).subspan(run.whole_begin, piece.size()),
                             *stream_);
  });
}

absl::StatusOr<std::map<std::string, std::vector<float>>> MeshTrainer::ReadOwnParameters() const {
  std::map<std::string, std::vector<float>> own;
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const std::vector<ParameterSpec>& parameters = store_->units()[unit].parameters;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      if (store_->parameters().is_sharded(unit)) continue;
      std::vector<float>& values = own[parameters[i].name];
      values.resize(parameters[i].local_shape.num_elements());
      const ElementRange slot = store_->layout(unit).slot(i);
      TESSERA_RETURN_IF_ERROR(
          CopyOutFp32(store_->parameters().Held(unit, slot), absl::MakeSpan(values), *stream_));
    }
  }
  return own;
}

}  // namespace tessera
