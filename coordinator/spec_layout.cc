#include "coordinator/spec_layout.h"

#include <cmath>

namespace tessera {
namespace {

int MicroBatchesOf(const v1::BatchSpec& batch) {
  return batch.has_micro_batches() ? batch.micro_batches() : 1;
}

int64_t KvHeadsOf(const v1::ModelSpec& model) {
  return model.has_kv_heads() ? model.kv_heads() : model.heads();
}

int64_t IntermediateSizeOf(const v1::ModelSpec& model) {
  return model.has_intermediate_size() ? model.intermediate_size()
                                       : int64_t{4} * model.hidden_size();
}

plan::PipelineSchedule FromProto(v1::PipelineSchedule schedule) {
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

plan::ContextParallelAttention FromProto(v1::ContextParallelKind kind) {
  switch (kind) {
    case v1::CONTEXT_PARALLEL_KIND_ALL_GATHER:
      return plan::ContextParallelAttention::kAllGather;
    case v1::CONTEXT_PARALLEL_KIND_ULYSSES:
      return plan::ContextParallelAttention::kUlysses;
    default:
      return plan::ContextParallelAttention::kRing;
  }
}

plan::RecomputeKind FromProto(v1::Recompute recompute) {
  switch (recompute) {
    case v1::RECOMPUTE_ATTENTION:
      return plan::RecomputeKind::kAttention;
    case v1::RECOMPUTE_FULL:
      return plan::RecomputeKind::kFull;
    default:
      return plan::RecomputeKind::kNone;
  }
}

int64_t SizeBytes(v1::Precision precision) {
  return precision == v1::PRECISION_BF16 || precision == v1::PRECISION_FP16 ? 2 : 4;
}

bool ClipsBeforeReduce(const v1::OptimizerSpec& optimizer) {
  return optimizer.gradient_clipping() == v1::GRADIENT_CLIPPING_BEFORE_REDUCE &&
         (!optimizer.has_gradient_clip_norm() || std::isfinite(optimizer.gradient_clip_norm()));
}

}  // namespace

plan::MeshSize MeshOf(const v1::MeshSpec& mesh) {
  auto size = [](int32_t value) { return value == 0 ? 1 : value; };
  return {
      .dp = size(mesh.dp()), .cp = size(mesh.cp()), .pp = size(mesh.pp()), .tp = size(mesh.tp())};
}

plan::ScheduleOptions ScheduleOf(const v1::TrainingJobSpec& spec) {
  plan::ScheduleOptions options;
  options.schedule = FromProto(spec.pipeline_schedule());
  options.stages = MeshOf(spec.mesh()).pp;
  options.micro_batches = MicroBatchesOf(spec.batch());
  const bool is_interleaved = options.schedule == plan::PipelineSchedule::kInterleaved1f1b;
  options.chunks = is_interleaved ? 2 : 1;
  if (spec.has_pipeline_chunks()) options.chunks = spec.pipeline_chunks();
  return options;
}

v1::PipelineSchedule ToProto(plan::PipelineSchedule schedule) {
  switch (schedule) {
    case plan::PipelineSchedule::kNaive:
      return v1::PIPELINE_SCHEDULE_NAIVE;
    case plan::PipelineSchedule::kGpipe:
      return v1::PIPELINE_SCHEDULE_GPIPE;
    case plan::PipelineSchedule::k1f1b:
      return v1::PIPELINE_SCHEDULE_1F1B;
    case plan::PipelineSchedule::kInterleaved1f1b:
      return v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B;
    case plan::PipelineSchedule::kZeroBubbleH1:
      return v1::PIPELINE_SCHEDULE_ZERO_BUBBLE_H1;
  }
  return v1::PIPELINE_SCHEDULE_UNSPECIFIED;
}

int64_t MicroBatchSizeOf(const v1::TrainingJobSpec& spec) {
  const int64_t parts = int64_t{MeshOf(spec.mesh()).dp} * MicroBatchesOf(spec.batch());
  return spec.batch().global_batch_size() / parts;
}

plan::LayoutRequest LayoutOf(const v1::TrainingJobSpec& spec) {
  plan::LayoutRequest request;
  request.mesh = MeshOf(spec.mesh());
  request.layers = spec.model().layers();
  request.heads = spec.model().heads();
  request.kv_heads = KvHeadsOf(spec.model());
  request.intermediate_size = IntermediateSizeOf(spec.model());
  request.sequence_length = spec.data().sequence_length();
  request.micro_batch_size = MicroBatchSizeOf(spec);
  request.sequence_parallel = spec.sequence_parallel();
  request.is_ulysses = spec.context_parallel() == v1::CONTEXT_PARALLEL_KIND_ULYSSES;
  request.schedule = ScheduleOf(spec);
  request.chunk_layers.assign(spec.chunk_layers().begin(), spec.chunk_layers().end());
  return request;
}

std::vector<std::vector<plan::StageChunk>> StagesOf(const v1::TrainingJobSpec& spec) {
  const plan::ScheduleOptions schedule = ScheduleOf(spec);
  const std::vector<int> chunk_layers(spec.chunk_layers().begin(), spec.chunk_layers().end());
  return *plan::PartitionStages(
      spec.model().layers(), schedule.stages, schedule.chunks, chunk_layers,
      plan::LayerCostsOf(ModelSizesOf(spec.model()), spec.data().sequence_length()));
}

plan::ModelSizes ModelSizesOf(const v1::ModelSpec& model) {
  plan::ModelSizes sizes;
  sizes.is_llama = model.family() == v1::MODEL_FAMILY_LLAMA;
  sizes.vocab_size = model.vocab_size();
  sizes.context_length = model.context_length();
  sizes.layers = model.layers();
  sizes.heads = model.heads();
  sizes.kv_heads = KvHeadsOf(model);
  sizes.head_size = model.has_head_size() ? model.head_size() : model.hidden_size() / model.heads();
  sizes.hidden_size = model.hidden_size();
  sizes.intermediate_size = IntermediateSizeOf(model);
  sizes.tied_embeddings =
      model.has_tie_word_embeddings() ? model.tie_word_embeddings() : !sizes.is_llama;
  sizes.attention_bias = sizes.is_llama && model.attention_bias();
  return sizes;
}

plan::TrafficRequest TrafficOf(const v1::TrainingJobSpec& spec,
                               const std::vector<plan::StageChunk>& chunks) {
  plan::TrafficRequest request;
  request.model = ModelSizesOf(spec.model());
  request.mesh = MeshOf(spec.mesh());
  request.chunks = chunks;
  request.schedule = ScheduleOf(spec).schedule;
  request.micro_batches = MicroBatchesOf(spec.batch());
  request.micro_batch_size = MicroBatchSizeOf(spec);
  request.sequence_length = spec.data().sequence_length();
  request.element_bytes = SizeBytes(spec.precision());
  request.gradient_bytes = spec.gradient_precision() == v1::PRECISION_UNSPECIFIED
                               ? request.element_bytes
                               : SizeBytes(spec.gradient_precision());

  request.sequence_parallel = spec.sequence_parallel();
  request.context_parallel = FromProto(spec.context_parallel());
  request.recompute = FromProto(spec.recompute());
  request.recompute_layers = {0, spec.model().layers()};
  if (spec.has_recompute_layers()) {
    request.recompute_layers = {spec.recompute_layers().first(), spec.recompute_layers().count()};
  }
  // In a group of one there is nothing to shard.
  request.zero_stage = request.mesh.dp * request.mesh.cp > 1 ? spec.zero_stage() : 0;
  if (spec.gradient_reduction() == v1::GRADIENT_REDUCTION_PER_MICRO_BATCH) {
    request.gradient_reduction = plan::GradientReduction::kPerMicroBatch;
  }
  request.resident_parameters = spec.parameter_gather().resident_parameters();
  request.clips_before_reduce = ClipsBeforeReduce(spec.optimizer());
  request.checks_replicated_gradients = spec.check_replicated_gradients();
  return request;
}

plan::StateOffload OffloadOf(const v1::StateOffload& state) {
  plan::StateOffload offload;
  if (state.tier() == v1::TIER_HOST) offload.tier = plan::Tier::kHost;
  if (state.tier() == v1::TIER_NVME) offload.tier = plan::Tier::kNvme;
  if (state.has_fraction()) offload.fraction = state.fraction();
  return offload;
}

plan::OffloadOptions OffloadOf(const v1::TrainingJobSpec& spec) {
  const v1::OffloadSpec& offload = spec.offload();
  plan::OffloadOptions options;
  options.optimizer = OffloadOf(offload.optimizer());
  options.gradients = OffloadOf(offload.gradients());
  options.parameters = OffloadOf(offload.parameters());
  options.activations = offload.activations();
  if (offload.has_buffers()) options.buffers = offload.buffers();
  if (offload.has_buffer_bytes()) options.buffer_bytes = offload.buffer_bytes();
  return options;
}

plan::LedgerRequest LedgerOf(const v1::TrainingJobSpec& spec,
                             const std::vector<plan::StageChunk>& chunks, int pp_rank) {
  plan::LedgerRequest request;
  request.job = TrafficOf(spec, chunks);
  request.schedule = ScheduleOf(spec);
  request.pp_rank = pp_rank;
  if (spec.parameter_gather().has_prefetch_units()) {
    request.prefetch_units = spec.parameter_gather().prefetch_units();
  }
  request.offload = OffloadOf(spec);
  return request;
}

}  // namespace tessera
