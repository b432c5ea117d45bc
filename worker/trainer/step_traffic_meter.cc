#include "worker/trainer/step_traffic_meter.h"

#include <cmath>
#include <utility>

namespace tessera {
namespace {

constexpr std::pair<plan::TrafficKind, CollectiveKind> kKinds[] = {
    {plan::TrafficKind::kAllReduce, CollectiveKind::kAllReduce},
    {plan::TrafficKind::kReduceScatter, CollectiveKind::kReduceScatter},
    {plan::TrafficKind::kAllGather, CollectiveKind::kAllGather},
    {plan::TrafficKind::kBroadcast, CollectiveKind::kBroadcast},
    {plan::TrafficKind::kAllToAll, CollectiveKind::kAllToAll},
    {plan::TrafficKind::kSend, CollectiveKind::kSend},
    {plan::TrafficKind::kRecv, CollectiveKind::kRecv},
};

plan::ContextParallelAttention AttentionOf(ContextParallelKind kind) {
  switch (kind) {
    case ContextParallelKind::kRing:
      return plan::ContextParallelAttention::kRing;
    case ContextParallelKind::kAllGather:
      return plan::ContextParallelAttention::kAllGather;
    case ContextParallelKind::kUlysses:
      return plan::ContextParallelAttention::kUlysses;
  }
  return plan::ContextParallelAttention::kRing;
}

plan::RecomputeKind RecomputeOf(Recompute what) {
  switch (what) {
    case Recompute::kNone:
      return plan::RecomputeKind::kNone;
    case Recompute::kAttention:
      return plan::RecomputeKind::kAttention;
    case Recompute::kFull:
      return plan::RecomputeKind::kFull;
  }
  return plan::RecomputeKind::kNone;
}

}  // namespace

plan::TrafficRequest MakeTrafficRequest(const TrainingConfig& config) {
  plan::TrafficRequest request;
  request.model = ModelSizesOf(config.model);
  request.mesh = config.mesh;
  for (const ModelChunk& chunk : config.part.chunks) {
    request.chunks.push_back({{static_cast<int>(chunk.first_layer), static_cast<int>(chunk.layers)},
                              chunk.has_embedding,
                              chunk.has_head});
  }
  request.schedule = config.schedule.schedule;
  request.micro_batches = config.micro_batches;
  request.micro_batch_size = config.micro_batch_size();
  request.sequence_length = config.sequence_length;
  request.element_bytes = DTypeSizeBytes(config.dtype);
  request.gradient_bytes = DTypeSizeBytes(config.gradient_dtype);
  request.sequence_parallel = config.part.tp.sequence_parallel;
  request.context_parallel = AttentionOf(config.context_parallel);
  request.recompute = RecomputeOf(config.recompute.what);
  request.recompute_layers = {static_cast<int>(config.recompute.first_layer),
                              static_cast<int>(config.recompute.num_layers)};
  request.zero_stage = config.zero.zero_stage;
  request.gradient_reduction = config.zero.reduction;
  request.resident_parameters = config.zero.resident_parameters;
  request.clips_before_reduce =
      config.optimizer.clip_before_reduce && std::isfinite(config.optimizer.clip_norm);
  request.checks_replicated_gradients = config.check_replicated_gradients;
  return request;
}

StepTrafficMeter::StepTrafficMeter(const TrainingConfig& config, const MeshGroups& groups)
    : groups_{groups.dp, groups.cp, groups.pp, groups.tp, groups.zero},
      predicted_(plan::PredictStepTraffic(MakeTrafficRequest(config))) {}

StepTrafficMeter::Counts StepTrafficMeter::Now() const {
  Counts counts;
  for (size_t i = 0; i < groups_.size(); ++i) counts[i] = groups_[i]->stats();
  return counts;
}

void StepTrafficMeter::Resume() {
  const Counts now = Now();
  for (size_t i = 0; i < now.size(); ++i) {
    for (int kind = 0; kind < kNumCollectiveKinds; ++kind) {
      before_[i][kind].calls += now[i][kind].calls - paused_[i][kind].calls;
      before_[i][kind].bytes += now[i][kind].bytes - paused_[i][kind].bytes;
      before_[i][kind].wait_ns += now[i][kind].wait_ns - paused_[i][kind].wait_ns;
    }
  }
}

std::vector<TrafficLine> StepTrafficMeter::End() const {
  const Counts now = Now();
  std::vector<TrafficLine> lines;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const plan::GroupAxis axis = plan::kGroupAxes[i];
    for (const auto& [planned, kind] : kKinds) {
      const auto k = static_cast<size_t>(kind);
      const plan::TrafficCount& predicted = predicted_.of(axis, planned);
      const TrafficLine line{axis,
                             kind,
                             now[i][k].calls - before_[i][k].calls,
                             now[i][k].bytes - before_[i][k].bytes,
                             predicted.calls,
                             predicted.bytes,
                             static_cast<double>(now[i][k].wait_ns - before_[i][k].wait_ns) * 1e-9};
      if (line.calls > 0 || line.predicted_calls > 0) lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace tessera
