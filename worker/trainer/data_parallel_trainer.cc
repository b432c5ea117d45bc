#include "worker/trainer/data_parallel_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/checkpoint/weight_writer.h"
#include "worker/generation/token_picker.h"
#include "worker/model/generator.h"
#include "worker/model/initial_weights.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Parameters are read and written by pieces of this.
constexpr int64_t kPieceElements = 1 << 20;

// The weights are still those of the step before.
absl::Status NotFinite(int64_t step, absl::string_view what, double value) {
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, ": ", what, " is ", value, "; a lower learning rate may help"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> DataParallelTrainer::Create(const TrainingConfig& config,
                                                                     const MeshGroups& groups,
                                                                     const JobData& data,
                                                                     const WeightReader* weights,
                                                                     Device& device) {
  std::unique_ptr<DataParallelTrainer> trainer(new DataParallelTrainer(config, data, device));
  TESSERA_RETURN_IF_ERROR(trainer->Allocate(groups));
  TESSERA_RETURN_IF_ERROR(trainer->FillInitialWeights(weights));
  return trainer;
}

DataParallelTrainer::DataParallelTrainer(const TrainingConfig& config, const JobData& data,
                                         Device& device)
    : config_(config),
      data_(data),
      device_(device),
      order_(data.train->num_tokens(), static_cast<int32_t>(config.sequence_length),
             config.data_seed),
      batch_(config.local_batch_size(), config.sequence_length),
      evaluation_batch_(config.micro_batch_size(), config.sequence_length),
      losses_(config.micro_batch_size() * config.sequence_length) {
  if (config.loss_scale) loss_scaler_.emplace(*config.loss_scale);
}

absl::Status DataParallelTrainer::Allocate(const MeshGroups& groups) {
  TESSERA_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  ZeroStoreOptions store_options;
  store_options.group_size = groups.zero->size();
  store_options.parameter_dtype = config_.dtype;
  store_options.gradient_dtype = config_.gradient_dtype;
  TESSERA_ASSIGN_OR_RETURN(
      store_, ZeroStore::Create(Units(config_.model), store_options, device_, *stream_));
  TESSERA_ASSIGN_OR_RETURN(optimizer_, ZeroOptimizer::Create(config_.optimizer, *store_,
                                                             *groups.zero, device_, *stream_));
  TESSERA_ASSIGN_OR_RETURN(reducer_, LossReducer::Create(*groups.zero, device_));
  model_ = std::make_unique<Transformer>(config_.model, *store_);
  ActivationOptions options;
  options.batch = config_.micro_batch_size();
  options.time = config_.sequence_length;
  options.backward = true;
  options.dtype = config_.dtype;
  options.recompute = config_.recompute;
  TESSERA_ASSIGN_OR_RETURN(TransformerActivations activations,
                           TransformerActivations::Create(config_.model, options, device_));
  activations_ = std::make_unique<TransformerActivations>(std::move(activations));
  // As long as a training sequence: later positions were never learned. Taken now, so that a job
  // that starts has all the memory that it will need.
  if (config_.sample && config_.dp_rank == 0) {
    TESSERA_ASSIGN_OR_RETURN(
        sampler_,
        Generator::Create(*model_, config_.dtype, config_.sequence_length, device_, *stream_));
  }
  return absl::OkStatus();
}

template <typename Body>
absl::Status DataParallelTrainer::ForPieces(const Body& body) {
  std::vector<float> values(kPieceElements);
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const std::vector<ParameterSpec>& parameters = store_->units()[unit].parameters;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      const int64_t count = parameters[i].shape.num_elements();
      for (int64_t begin = 0; begin < count; begin += kPieceElements) {
        const int64_t size = std::min(kPieceElements, count - begin);
        TESSERA_RETURN_IF_ERROR(body(ParameterId{unit, i}, parameters[i], begin,
                                     absl::MakeSpan(values).subspan(0, size)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status DataParallelTrainer::FillInitialWeights(const WeightReader* weights) {
  return ForPieces(
      [&](ParameterId id, const ParameterSpec& parameter, int64_t begin, absl::Span<float> values) {
        if (weights != nullptr) {
          TESSERA_RETURN_IF_ERROR(weights->ReadParameter(parameter.name, begin, values));
        } else {
          FillInitialValues(parameter, config_.init_seed, begin, values);
        }
        return optimizer_->Write(id, begin, values, *stream_);
      });
}

absl::Status DataParallelTrainer::Export(const std::string& folder) {
  return ExportAs(folder, config_.export_options ? config_.export_options->dtype : config_.dtype);
}

absl::Status DataParallelTrainer::ExportAs(const std::string& folder, DType dtype) {
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

absl::Status DataParallelTrainer::ReadElements(absl::string_view name, int64_t begin,
                                               absl::Span<float> values) const {
  TESSERA_ASSIGN_OR_RETURN(const ParameterId id, store_->Find(std::string(name)));
  return optimizer_->Read(id, begin, values, *stream_);
}

absl::Status DataParallelTrainer::Run(TrainingObserver& observer) {
  const int64_t every = config_.evaluate_every_steps;
  if (every > 0) {
    StepResult start;
    TESSERA_ASSIGN_OR_RETURN(start.validation_loss, Evaluate(observer));
    observer.OnStep(start);
  }
  for (int64_t step = 1; step <= config_.steps; ++step) {
    observer.OnStepBegin(step);
    TESSERA_ASSIGN_OR_RETURN(StepResult result, Step(step, observer));
    if (every > 0 && (step % every == 0 || step == config_.steps)) {
      TESSERA_ASSIGN_OR_RETURN(result.validation_loss, Evaluate(observer));
    }
    observer.OnStep(result);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> DataParallelTrainer::Step(int64_t step, TrainingObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  LoadStep(step);
  ZeroOptimizer::StepInput input;
  input.step = updates_ + 1;
  input.learning_rate = LearningRateAt(config_.learning_rate, step);
  input.local_valid_targets = batch_.valid_targets();
  TESSERA_ASSIGN_OR_RETURN(input.global_valid_targets,
                           reducer_->Reduce(input.local_valid_targets, *stream_));
  if (input.global_valid_targets == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, ": no target of the global batch carries a loss"));
  }
  TESSERA_RETURN_IF_ERROR(store_->ClearGradients(*stream_));
  if (loss_scaler_) input.loss_scale = loss_scaler_->scale();
  const float scale =
      static_cast<float>(input.loss_scale / static_cast<double>(input.global_valid_targets));
  LossTotal local;
  for (int64_t i = 0; i < config_.micro_batches; ++i) {
    TESSERA_RETURN_IF_ERROR(observer.CheckStop());
    TESSERA_RETURN_IF_ERROR(
        RunMicroBatch(batch_, i * config_.micro_batch_size(), scale, /*backward=*/true, local));
  }
  TESSERA_ASSIGN_OR_RETURN(const LossTotal total, reducer_->Reduce(local, *stream_));
  StepResult result;
  result.step = step;
  result.loss = total.Mean();
  result.learning_rate = input.learning_rate;
  if (!loss_scaler_ && !std::isfinite(result.loss)) return NotFinite(step, "loss", result.loss);
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

void DataParallelTrainer::LoadStep(int64_t step) {
  const int64_t first =
      (step - 1) * config_.global_batch_size + config_.dp_rank * config_.local_batch_size();
  for (int64_t i = 0; i < config_.local_batch_size(); ++i) {
    batch_.Fill(i, *data_.train, order_.WindowBegin(first + i), config_.ignore_target_ids);
  }
}

absl::Status DataParallelTrainer::RunMicroBatch(const HostBatch& batch, int64_t first,
                                                float gradient_scale, bool backward,
                                                LossTotal& total) {
  const int64_t count = config_.micro_batch_size(), time = config_.sequence_length;
  TransformerActivations& activations = *activations_;
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(batch.inputs(first, count).data(),
                                         activations.ids.size_bytes(), activations.ids, *stream_));
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(batch.targets(first, count).data(),
                                         activations.targets.size_bytes(), activations.targets,
                                         *stream_));
  TESSERA_RETURN_IF_ERROR(model_->Forward(activations, *stream_));
  TESSERA_RETURN_IF_ERROR(model_->Loss(activations, gradient_scale, backward, *stream_));
  if (backward) TESSERA_RETURN_IF_ERROR(model_->Backward(activations, *stream_));
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(activations.head.losses, losses_.data(),
                                          activations.head.losses.size_bytes(), *stream_));
  TESSERA_RETURN_IF_ERROR(stream_->Synchronize());
  for (int64_t i = 0; i < count; ++i) {
    total.AddSequence(absl::MakeConstSpan(losses_).subspan(i * time, time),
                      batch.valid_targets(first + i));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> DataParallelTrainer::Evaluate(TrainingObserver& observer) {
  const int64_t time = config_.sequence_length, dp = config_.dp_size;
  int64_t windows = (data_.validation->num_tokens() - 1) / time;
  if (config_.evaluation_sequences) windows = std::min(windows, *config_.evaluation_sequences);
  LossTotal local;
  // Rank r has windows r, r + dp, ...; the last micro-batch is filled up with empty sequences.
  for (int64_t window = config_.dp_rank; window < windows;) {
    for (int64_t i = 0; i < config_.micro_batch_size(); ++i, window += dp) {
      TESSERA_RETURN_IF_ERROR(observer.CheckStop());
      if (window < windows) {
        evaluation_batch_.Fill(i, *data_.validation, window * time, config_.ignore_target_ids);
      } else {
        evaluation_batch_.FillEmpty(i);
      }
    }
    TESSERA_RETURN_IF_ERROR(
        RunMicroBatch(evaluation_batch_, 0, /*gradient_scale=*/1, /*backward=*/false, local));
  }
  TESSERA_ASSIGN_OR_RETURN(const LossTotal total, reducer_->Reduce(local, *stream_));
  if (total.valid_targets() == 0) {
    return absl::FailedPreconditionError("evaluation: no validation target carries a loss");
  }
  return total.Mean();
}

absl::StatusOr<std::string> DataParallelTrainer::Sample(TrainingObserver& observer) {
  if (sampler_ == nullptr) return std::string();
  const SampleOptions& options = *config_.sample;
  const int64_t time = config_.sequence_length, vocab = config_.model.vocab_size;
  std::vector<int32_t> ids;
  for (const char byte : options.prompt) {
    ids.push_back(static_cast<unsigned char>(byte));
    if (ids.back() >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat(
          "spec.sample.prompt: ", ids.back(), ": must be bytes below spec.model.vocab_size"));
    }
  }
  if (ids.empty()) return absl::InvalidArgumentError("spec.sample.prompt: \"\": required");
  const TokenChoice choice{options.temperature, options.top_k, options.top_p, options.seed};
  std::string text;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    TESSERA_RETURN_IF_ERROR(observer.CheckStop());
    absl::Span<const int32_t> next = absl::MakeConstSpan(ids).last(1);
    if (i == 0 || sampler_->length() == time) {
      // At the start the prompt's end, and when the sequence is full its later half.
      sampler_->Restart();
      const int64_t kept = i == 0 ? time : (time + 1) / 2;
      next = absl::MakeConstSpan(ids).last(std::min<int64_t>(kept, ids.size()));
    }
    TESSERA_ASSIGN_OR_RETURN(const absl::Span<const float> logits, sampler_->Append(next));
    // Ids beyond a byte are not text.
    const absl::Span<const float> bytes = logits.subspan(0, std::min<int64_t>(vocab, 256));
    ids.push_back(PickToken(bytes, choice, i));
    text.push_back(static_cast<char>(ids.back()));
  }
  return text;
}

std::vector<ShardInfo> DataParallelTrainer::shards() const {
  std::vector<ShardInfo> shards;
  for (size_t unit = 0; unit < store_->units().size(); ++unit) {
    const int64_t size = store_->layout(static_cast<int>(unit)).size_elements;
    const std::string& name = store_->units()[unit].name;
    shards.push_back({name, "parameters", 0, size, size * DTypeSizeBytes(config_.dtype)});
    shards.push_back({name, "gradients", 0, size, size * DTypeSizeBytes(config_.gradient_dtype)});
    shards.push_back({name, "optimizer", 0, size, size * optimizer_->bytes_per_element()});
  }
  return shards;
}

std::vector<std::string> DataParallelTrainer::parameter_names() const {
  std::vector<std::string> names;
  for (const UnitSpec& unit : store_->units()) {
    for (const ParameterSpec& parameter : unit.parameters) names.push_back(parameter.name);
  }
  return names;
}

absl::StatusOr<std::vector<float>> DataParallelTrainer::ReadParameter(
    const std::string& name) const {
  TESSERA_ASSIGN_OR_RETURN(const ParameterId id, store_->Find(name));
  std::vector<float> values(store_->units()[id.unit].parameters[id.index].shape.num_elements());
  TESSERA_RETURN_IF_ERROR(optimizer_->Read(id, 0, absl::MakeSpan(values), *stream_));
  return values;
}

absl::Status DataParallelTrainer::WriteParameter(const std::string& name,
                                                 const std::vector<float>& values) {
  TESSERA_ASSIGN_OR_RETURN(const ParameterId id, store_->Find(name));
  const int64_t count = store_->units()[id.unit].parameters[id.index].shape.num_elements();
  if (static_cast<int64_t>(values.size()) != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter \"", name, "\": ", values.size(), " values: must be ", count));
  }
  return optimizer_->Write(id, 0, values, *stream_);
}

}  // namespace tessera
