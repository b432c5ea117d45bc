#include "worker/trainer/gpt2_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/trainer/token_picker.h"

namespace tessera {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The weights are still those of the step before.
absl::Status NotFinite(int64_t step, absl::string_view what, double value) {
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, ": ", what, " is ", value, "; a lower learning rate may help"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Gpt2Trainer::Create(const TrainingConfig& config,
                                                             const MeshGroups& groups,
                                                             const JobData& data, Device& device) {
  std::unique_ptr<Gpt2Trainer> trainer(new Gpt2Trainer(config, data, device));
  TESSERA_RETURN_IF_ERROR(trainer->Allocate(groups));
  return trainer;
}

Gpt2Trainer::Gpt2Trainer(const TrainingConfig& config, const JobData& data, Device& device)
    : config_(config),
      data_(data),
      device_(device),
      order_(data.train->num_tokens(), static_cast<int32_t>(config.sequence_length),
             config.data_seed),
      batch_(config.local_batch_size(), config.sequence_length),
      evaluation_batch_(config.micro_batch_size(), config.sequence_length),
      losses_(config.micro_batch_size() * config.sequence_length) {}

absl::Status Gpt2Trainer::Allocate(const MeshGroups& groups) {
  TESSERA_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  TESSERA_ASSIGN_OR_RETURN(store_, ZeroStore::Create(Gpt2Units(config_.model), config_.init_seed,
                                                     groups.zero->size(), device_, *stream_));
  TESSERA_ASSIGN_OR_RETURN(optimizer_, ZeroOptimizer::Create(config_.optimizer, *store_,
                                                             *groups.zero, device_, *stream_));
  TESSERA_ASSIGN_OR_RETURN(reducer_, LossReducer::Create(*groups.zero, device_));
  model_ = std::make_unique<Gpt2>(config_.model, *store_);
  TESSERA_ASSIGN_OR_RETURN(
      Gpt2Activations activations,
      Gpt2Activations::Create(config_.model, config_.micro_batch_size(), config_.sequence_length,
                              /*backward=*/true, device_));
  activations_ = std::make_unique<Gpt2Activations>(std::move(activations));
  return absl::OkStatus();
}

absl::Status Gpt2Trainer::Run(TrainingObserver& observer) {
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

absl::StatusOr<StepResult> Gpt2Trainer::Step(int64_t step, TrainingObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  LoadStep(step);
  ZeroOptimizer::StepInput input;
  input.step = step;
  input.learning_rate = LearningRateAt(config_.learning_rate, step);
  input.local_valid_targets = batch_.valid_targets();
  TESSERA_ASSIGN_OR_RETURN(input.global_valid_targets,
                           reducer_->Reduce(input.local_valid_targets, *stream_));
  if (input.global_valid_targets == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, ": no target of the global batch carries a loss"));
  }
  TESSERA_RETURN_IF_ERROR(store_->ClearGradients(*stream_));
  const float scale = static_cast<float>(1.0 / static_cast<double>(input.global_valid_targets));
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
  if (!std::isfinite(result.loss)) return NotFinite(step, "loss", result.loss);
  TESSERA_ASSIGN_OR_RETURN(result.gradient_norm, optimizer_->Step(input, *stream_));
  if (!std::isfinite(result.gradient_norm)) {
    return NotFinite(step, "gradient norm", result.gradient_norm);
  }
  TESSERA_RETURN_IF_ERROR(stream_->Synchronize());
  result.tokens = config_.global_batch_size * config_.sequence_length;
  result.seconds = SecondsSince(start);
  return result;
}

void Gpt2Trainer::LoadStep(int64_t step) {
  const int64_t first =
      (step - 1) * config_.global_batch_size + config_.dp_rank * config_.local_batch_size();
  for (int64_t i = 0; i < config_.local_batch_size(); ++i) {
    batch_.Fill(i, *data_.train, order_.WindowBegin(first + i), config_.ignore_target_ids);
  }
}

absl::Status Gpt2Trainer::RunMicroBatch(const HostBatch& batch, int64_t first, float gradient_scale,
                                        bool backward, LossTotal& total) {
  const int64_t count = config_.micro_batch_size(), time = config_.sequence_length;
  Gpt2Activations& activations = *activations_;
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

absl::StatusOr<double> Gpt2Trainer::Evaluate(TrainingObserver& observer) {
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

absl::StatusOr<std::string> Gpt2Trainer::Sample(TrainingObserver& observer) {
  if (!config_.sample) return std::string();
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
  TESSERA_ASSIGN_OR_RETURN(
      Gpt2Activations activations,
      Gpt2Activations::Create(config_.model, 1, time, /*backward=*/false, device_));
  const TokenChoice choice{options.temperature, options.top_k, options.seed};
  // The window is a training sequence's: later positions were never learned. Its unused end is
  // filled with id 0, which no earlier position sees.
  std::vector<int32_t> window(time);
  std::vector<float> logits(vocab);
  std::string text;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    TESSERA_RETURN_IF_ERROR(observer.CheckStop());
    const int64_t count = std::min<int64_t>(time, ids.size());
    std::copy(ids.end() - count, ids.end(), window.begin());
    TESSERA_RETURN_IF_ERROR(
        device_.CopyIn(window.data(), activations.ids.size_bytes(), activations.ids, *stream_));
    TESSERA_RETURN_IF_ERROR(model_->Forward(activations, *stream_));
    const Tensor last = activations.head.logits.Slice((count - 1) * vocab, vocab);
    TESSERA_RETURN_IF_ERROR(device_.CopyOut(last, logits.data(), last.size_bytes(), *stream_));
    TESSERA_RETURN_IF_ERROR(stream_->Synchronize());
    // Ids beyond a byte are not text.
    const absl::Span<const float> bytes =
        absl::MakeConstSpan(logits).subspan(0, std::min<int64_t>(vocab, 256));
    ids.push_back(PickToken(bytes, choice, i));
    text.push_back(static_cast<char>(ids.back()));
  }
  return text;
}

std::vector<ShardInfo> Gpt2Trainer::shards() const {
  std::vector<ShardInfo> shards;
  for (size_t unit = 0; unit < store_->units().size(); ++unit) {
    const int64_t size = store_->layout(static_cast<int>(unit)).size_elements;
    const std::string& name = store_->units()[unit].name;
    const int64_t bytes = size * DTypeSizeBytes(DType::kFloat32);
    shards.push_back({name, "parameters", 0, size, bytes});
    shards.push_back({name, "gradients", 0, size, bytes});
    shards.push_back({name, "optimizer", 0, size, 2 * bytes});
  }
  return shards;
}

std::vector<std::string> Gpt2Trainer::parameter_names() const {
  std::vector<std::string> names;
  for (const UnitSpec& unit : store_->units()) {
    for (const ParameterSpec& parameter : unit.parameters) names.push_back(parameter.name);
  }
  return names;
}

absl::StatusOr<std::vector<float>> Gpt2Trainer::ReadParameter(const std::string& name) const {
  return store_->Read(name, *stream_);
}

absl::Status Gpt2Trainer::WriteParameter(const std::string& name,
                                         const std::vector<float>& values) {
  return store_->Write(name, values, *stream_);
}

}  // namespace tessera
