#include "worker/trainer/training_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "plan/layout_check.h"
#include "plan/stage_partition.h"

namespace tessera {
namespace {

// Remembers the first field that fails.
class FieldChecks {
 public:
  FieldChecks& Valid(bool holds, absl::string_view field, const absl::AlphaNum& value,
                     absl::string_view rule) {
    if (status_.ok() && !holds) {
      status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", value, ": ", rule));
    }
    return *this;
  }
  FieldChecks& Supported(bool holds, absl::string_view field, const absl::AlphaNum& value,
                         absl::string_view what_is) {
    if (status_.ok() && !holds) {
      status_ = absl::UnimplementedError(
          absl::StrCat(field, ": ", value, ": not supported by this version (", what_is, ")"));
    }
    return *this;
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

int64_t AxisSize(int32_t size) { return size == 0 ? 1 : size; }

absl::Status CheckSupported(const v1::TrainingJobSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  const bool clips_before =
      spec.optimizer().gradient_clipping() == v1::GRADIENT_CLIPPING_BEFORE_REDUCE;
  return FieldChecks()
      .Supported(model.dropout() == 0, "spec.model.dropout", model.dropout(), "0")
      .Supported(!clips_before || AxisSize(spec.mesh().cp()) == 1,
                 "spec.optimizer.gradient_clipping", "before_reduce",
                 "after_reduce where spec.mesh.cp is above 1")
      .Supported(!clips_before || !spec.offload().has_gradients(),
                 "spec.optimizer.gradient_clipping", "before_reduce",
                 "after_reduce with spec.offload.gradients")
      .status();
}

plan::StateOffload StateOffloadOf(const v1::StateOffload& spec) {
  plan::StateOffload offload;
  if (spec.tier() == v1::TIER_HOST) offload.tier = plan::Tier::kHost;
  if (spec.tier() == v1::TIER_NVME) offload.tier = plan::Tier::kNvme;
  if (spec.has_fraction()) offload.fraction = spec.fraction();
  return offload;
}

plan::OffloadOptions OffloadOf(const v1::OffloadSpec& spec) {
  plan::OffloadOptions offload;
  offload.optimizer = StateOffloadOf(spec.optimizer());
  offload.gradients = StateOffloadOf(spec.gradients());
  offload.parameters = StateOffloadOf(spec.parameters());
  offload.activations = spec.activations();
  if (spec.has_buffers()) offload.buffers = spec.buffers();
  if (spec.has_buffer_bytes()) offload.buffer_bytes = spec.buffer_bytes();
  return offload;
}

absl::Status CheckSizes(const v1::TrainingJobSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  const int64_t micro_batches = spec.batch().has_micro_batches() ? spec.batch().micro_batches() : 1;
  const int64_t dp = AxisSize(spec.mesh().dp());
  FieldChecks checks;
  checks
      .Valid(spec.zero_stage() >= 0 && spec.zero_stage() <= 3, "spec.zero_stage", spec.zero_stage(),
             "0 .. 3")
      .Valid(model.vocab_size() >= 2, "spec.model.vocab_size", model.vocab_size(), "at least 2")
      .Valid(model.context_length() >= 1, "spec.model.context_length", model.context_length(),
             "at least 1")
      .Valid(model.layers() >= 1, "spec.model.layers", model.layers(), "at least 1")
      .Valid(model.heads() >= 1, "spec.model.heads", model.heads(), "at least 1")
      .Valid(!model.has_kv_heads() || model.kv_heads() >= 1, "spec.model.kv_heads",
             model.kv_heads(), "at least 1")
      .Valid(!model.has_head_size() || (model.head_size() >= 2 && model.head_size() % 2 == 0),
             "spec.model.head_size", model.head_size(), "even and at least 2")
      .Valid(model.hidden_size() >= 1, "spec.model.hidden_size", model.hidden_size(), "at least 1")
      .Valid(!model.has_intermediate_size() || model.intermediate_size() >= 1,
             "spec.model.intermediate_size", model.intermediate_size(), "at least 1")
      .Valid(spec.data().sequence_length() >= 1 &&
                 spec.data().sequence_length() <= model.context_length(),
             "spec.data.sequence_length", spec.data().sequence_length(),
             "at least 1 and at most spec.model.context_length")
      .Valid(spec.learning_rate().peak() > 0, "spec.learning_rate.peak",
             spec.learning_rate().peak(), "positive")
      .Valid(spec.steps() >= 1, "spec.steps", spec.steps(), "at least 1")
      .Valid(spec.learning_rate().warmup_steps() >= 0 &&
                 spec.learning_rate().warmup_steps() <= spec.steps(),
             "spec.learning_rate.warmup_steps", spec.learning_rate().warmup_steps(),
             "0 .. spec.steps")
      .Valid(dp >= 1, "spec.mesh.dp", dp, "at least 1")
      .Valid(micro_batches >= 1, "spec.batch.micro_batches", micro_batches, "at least 1")
      .Valid(!spec.has_evaluation() || spec.evaluation().every_steps() >= 1,
             "spec.evaluation.every_steps", spec.evaluation().every_steps(), "at least 1")
      .Valid(!spec.has_sample() ||
                 (spec.data().format() == v1::DATA_FORMAT_TEXT && spec.data().tokenizer().empty()),
             "spec.sample", "", "needs spec.data.format text without spec.data.tokenizer");
  if (!checks.status().ok()) return checks.status();
  return checks
      .Valid(model.has_head_size() || model.hidden_size() % model.heads() == 0, "spec.model.heads",
             model.heads(), "must divide spec.model.hidden_size")
      .Valid(!model.has_kv_heads() || model.heads() % model.kv_heads() == 0, "spec.model.kv_heads",
             model.kv_heads(), "must divide spec.model.heads")
      .Valid(spec.batch().global_batch_size() >= 1 &&
                 spec.batch().global_batch_size() % (dp * micro_batches) == 0,
             "spec.batch.global_batch_size", spec.batch().global_batch_size(),
             "a multiple of spec.mesh.dp * spec.batch.micro_batches")
      .status();
}

plan::PipelineSchedule ScheduleOf(v1::PipelineSchedule schedule) {
  switch (schedule) {
    case v1::PIPELINE_SCHEDULE_NAIVE:
      return plan::PipelineSchedule::kNaive;
    case v1::PIPELINE_SCHEDULE_GPIPE:
      return plan::PipelineSchedule::kGpipe;
    case v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B:
      return plan::PipelineSchedule::kInterleaved1f1b;
    case v1::PIPELINE_SCHEDULE_ZERO_BUBBLE_H1:
      return plan::PipelineSchedule::kZeroBubbleH1;
    default:
      return plan::PipelineSchedule::k1f1b;
  }
}

ContextParallelKind KindOf(v1::ContextParallelKind kind) {
  switch (kind) {
    case v1::CONTEXT_PARALLEL_KIND_ALL_GATHER:
      return ContextParallelKind::kAllGather;
    case v1::CONTEXT_PARALLEL_KIND_ULYSSES:
      return ContextParallelKind::kUlysses;
    default:
      return ContextParallelKind::kRing;
  }
}

// Where this rank is in the mesh, and what it holds of the model.
absl::Status SetLayout(const v1::TrainingJobSpec& spec, const v1::MeshCoordinates& coordinates,
                       TrainingConfig& config) {
  const v1::MeshSpec& mesh = spec.mesh();
  config.mesh = {.dp = static_cast<int>(AxisSize(mesh.dp())),
                 .cp = static_cast<int>(AxisSize(mesh.cp())),
                 .pp = static_cast<int>(AxisSize(mesh.pp())),
                 .tp = static_cast<int>(AxisSize(mesh.tp()))};
  if (absl::Status status = plan::CheckMesh(config.mesh); !status.ok()) return status;
  const int rank = coordinates.global_rank();
  if (rank < 0 || rank >= config.mesh.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("coordinates.global_rank: ", rank,
                                                   ": inside spec.mesh (", config.mesh.world_size(),
                                                   " ranks)"));
  }
  config.at = plan::CoordinatesOf(config.mesh, rank);
  config.schedule.schedule = ScheduleOf(spec.pipeline_schedule());
  config.schedule.stages = config.mesh.pp;
  config.schedule.micro_batches = static_cast<int>(config.micro_batches);
  const bool is_interleaved = config.schedule.schedule == plan::PipelineSchedule::kInterleaved1f1b;
  config.schedule.chunks =
      spec.has_pipeline_chunks() ? spec.pipeline_chunks() : (is_interleaved ? 2 : 1);
  config.context_parallel = KindOf(spec.context_parallel());
  config.check_replicated_gradients = spec.check_replicated_gradients();
  config.trace_step = spec.trace().step();

  plan::LayoutRequest request;
  request.mesh = config.mesh;
  request.layers = config.model.layers;
  request.heads = config.model.heads;
  request.kv_heads = config.model.num_kv_heads();
  request.intermediate_size = config.model.intermediate_size;
  request.sequence_length = config.sequence_length;
  request.micro_batch_size = config.micro_batch_size();
  request.sequence_parallel = spec.sequence_parallel();
  request.is_ulysses = config.context_parallel == ContextParallelKind::kUlysses;
  request.schedule = config.schedule;
  request.chunk_layers.assign(spec.chunk_layers().begin(), spec.chunk_layers().end());
  if (const std::optional<plan::LayoutFault> fault = plan::CheckLayout(request)) {
    return absl::InvalidArgumentError(
        absl::StrCat(fault->field, ": ", fault->value, ": ", fault->rule));
  }
  auto stages = plan::PartitionStages(
      static_cast<int>(config.model.layers), config.mesh.pp, config.schedule.chunks,
      request.chunk_layers, plan::LayerCostsOf(ModelSizesOf(config.model), config.sequence_length));
  if (!stages.ok()) return stages.status();
  for (const plan::StageChunk& chunk : (*stages)[config.at.pp_rank]) {
    config.part.chunks.push_back(
        {chunk.layers.first, chunk.layers.count, chunk.has_embedding, chunk.has_head});
  }
  config.part.tp = {config.mesh.tp, config.at.tp_rank, spec.sequence_parallel()};
  config.part.splits_tied_embedding = config.model.tie_word_embeddings && config.mesh.pp > 1;
  return absl::OkStatus();
}

void SetPrecision(const v1::TrainingJobSpec& spec, TrainingConfig& config) {
  config.dtype = DTypeOf(spec.precision());
  config.gradient_dtype = spec.gradient_precision() == v1::PRECISION_UNSPECIFIED
                              ? config.dtype
                              : DTypeOf(spec.gradient_precision());
  if (config.dtype != DType::kFloat16) return;
  const v1::LossScaleSpec& scale = spec.loss_scale();
  LossScaleOptions options;
  if (scale.has_initial()) options.initial = scale.initial();
  if (scale.has_growth_interval()) options.growth_interval = scale.growth_interval();
  if (scale.has_hysteresis()) options.hysteresis = scale.hysteresis();
  if (scale.has_minimum()) options.minimum = scale.minimum();
  config.loss_scale = options;
}

ZeroOptions MakeZeroOptions(const v1::TrainingJobSpec& spec, const TrainingConfig& config) {
  ZeroOptions options;
  // In a group of one there is nothing to shard.
  options.zero_stage = config.zero_group_size() > 1 ? spec.zero_stage() : 0;
  options.parameter_dtype = config.dtype;
  options.gradient_dtype = config.gradient_dtype;
  options.micro_batches = config.micro_batches;
  if (spec.gradient_reduction() == v1::GRADIENT_REDUCTION_PER_MICRO_BATCH) {
    options.reduction = plan::GradientReduction::kPerMicroBatch;
  }
  options.defers_reduction =
      config.optimizer.clip_before_reduce && std::isfinite(config.optimizer.clip_norm);
  const v1::ParameterGatherSpec& gather = spec.parameter_gather();
  if (gather.has_prefetch_units()) options.prefetch_units = gather.prefetch_units();
  options.resident_parameters = gather.resident_parameters();
  return options;
}

RecomputePlan MakeRecomputePlan(const v1::TrainingJobSpec& spec) {
  RecomputePlan plan;
  if (spec.recompute() == v1::RECOMPUTE_ATTENTION) plan.what = Recompute::kAttention;
  if (spec.recompute() == v1::RECOMPUTE_FULL) plan.what = Recompute::kFull;
  plan.num_layers = spec.model().layers();
  if (spec.has_recompute_layers()) {
    plan.first_layer = spec.recompute_layers().first();
    plan.num_layers = spec.recompute_layers().count();
  }
  return plan;
}

ZeroOptimizerOptions MakeOptimizerOptions(const v1::OptimizerSpec& spec) {
  ZeroOptimizerOptions options;
  if (spec.has_beta1()) options.beta1 = spec.beta1();
  if (spec.has_beta2()) options.beta2 = spec.beta2();
  if (spec.has_epsilon()) options.epsilon = spec.epsilon();
  if (spec.has_weight_decay()) options.weight_decay = spec.weight_decay();
  if (spec.has_gradient_clip_norm()) options.clip_norm = spec.gradient_clip_norm();
  options.clip_before_reduce = spec.gradient_clipping() == v1::GRADIENT_CLIPPING_BEFORE_REDUCE;
  return options;
}

LearningRateSchedule MakeSchedule(const v1::LearningRateSpec& spec, int64_t steps) {
  return {spec.peak(), spec.has_final() ? spec.final() : spec.peak() / 10, spec.warmup_steps(),
          steps, spec.decay() != v1::LEARNING_RATE_DECAY_CONSTANT};
}

}  // namespace

DType DTypeOf(v1::Precision precision) {
  switch (precision) {
    case v1::PRECISION_BF16:
      return DType::kBFloat16;
    case v1::PRECISION_FP16:
      return DType::kFloat16;
    default:
      return DType::kFloat32;
  }
}

ModelConfig MakeModelConfig(const v1::ModelSpec& spec) {
  const bool is_llama = spec.family() == v1::MODEL_FAMILY_LLAMA;
  ModelConfig config;
  config.family = is_llama ? ModelFamily::kLlama : ModelFamily::kGpt2;
  config.vocab_size = spec.vocab_size();
  config.context_length = spec.context_length();
  config.layers = spec.layers();
  config.heads = spec.heads();
  config.hidden_size = spec.hidden_size();
  config.intermediate_size =
      spec.has_intermediate_size() ? spec.intermediate_size() : 4 * config.hidden_size;
  config.norm_epsilon = is_llama ? 1e-6f : 1e-5f;
  if (spec.has_norm_epsilon()) config.norm_epsilon = static_cast<float>(spec.norm_epsilon());
  if (spec.has_initializer_range()) config.initializer_range = spec.initializer_range();
  config.tie_word_embeddings =
      spec.has_tie_word_embeddings() ? spec.tie_word_embeddings() : !is_llama;
  if (!is_llama) return config;
  config.kv_heads = spec.has_kv_heads() ? spec.kv_heads() : 0;
  config.head_dim = spec.has_head_size() ? spec.head_size() : 0;
  config.attention_bias = spec.attention_bias();
  if (spec.has_rope_theta()) config.rope_theta = spec.rope_theta();
  if (spec.has_rope_scaling()) {
    const v1::RopeScaling& scaling = spec.rope_scaling();
    config.rope_scaling = {scaling.factor(),
                           scaling.has_low_freq_factor() ? scaling.low_freq_factor() : 1,
                           scaling.has_high_freq_factor() ? scaling.high_freq_factor() : 4,
                           scaling.original_context_length()};
  }
  return config;
}

plan::ModelSizes ModelSizesOf(const ModelConfig& model) {
  plan::ModelSizes sizes;
  sizes.is_llama = model.family == ModelFamily::kLlama;
  sizes.vocab_size = model.vocab_size;
  sizes.context_length = model.context_length;
  sizes.layers = model.layers;
  sizes.heads = model.heads;
  sizes.kv_heads = model.num_kv_heads();
  sizes.head_size = model.head_size();
  sizes.hidden_size = model.hidden_size;
  sizes.intermediate_size = model.intermediate_size;
  sizes.tied_embeddings = model.tie_word_embeddings;
  sizes.attention_bias = model.attention_bias;
  return sizes;
}

absl::StatusOr<TrainingConfig> MakeTrainingConfig(const v1::TrainingJobSpec& spec,
                                                  const v1::MeshCoordinates& coordinates) {
  if (absl::Status status = CheckSupported(spec); !status.ok()) return status;
  if (absl::Status status = CheckSizes(spec); !status.ok()) return status;
  TrainingConfig config;
  config.model = MakeModelConfig(spec.model());
  SetPrecision(spec, config);
  config.recompute = MakeRecomputePlan(spec);
  config.initial_weights = spec.initial_weights();
  config.optimizer = MakeOptimizerOptions(spec.optimizer());
  config.learning_rate = MakeSchedule(spec.learning_rate(), spec.steps());
  config.steps = spec.steps();
  config.sequence_length = spec.data().sequence_length();
  config.ignore_target_ids.assign(spec.data().ignore_target_ids().begin(),
                                  spec.data().ignore_target_ids().end());
  config.global_batch_size = spec.batch().global_batch_size();
  config.micro_batches = spec.batch().has_micro_batches() ? spec.batch().micro_batches() : 1;
  config.mesh.dp = static_cast<int>(AxisSize(spec.mesh().dp()));
  if (absl::Status status = SetLayout(spec, coordinates, config); !status.ok()) return status;
  config.zero = MakeZeroOptions(spec, config);
  config.offload = OffloadOf(spec.offload());
  config.init_seed = spec.seeds().init();
  config.data_seed = spec.seeds().data();
  if (spec.has_evaluation()) {
    config.evaluate_every_steps = spec.evaluation().every_steps();
    if (spec.evaluation().has_sequences()) {
      config.evaluation_sequences = spec.evaluation().sequences();
    }
  }
  if (spec.has_sample()) {
    const v1::SampleSpec& sample = spec.sample();
    config.sample = SampleOptions{sample.prompt(),
                                  sample.max_new_tokens(),
                                  sample.has_temperature() ? sample.temperature() : 1.0,
                                  sample.top_k(),
                                  sample.has_top_p() ? sample.top_p() : 1.0,
                                  sample.seed()};
  }
  if (spec.has_export_()) {
    const v1::Precision precision = spec.export_().precision();
    config.export_options =
        ExportOptions{spec.export_().path(),
                      precision == v1::PRECISION_UNSPECIFIED ? config.dtype : DTypeOf(precision)};
  }
  return config;
}

}  // namespace tessera
