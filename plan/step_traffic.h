// What one rank's communicators will count in one training step: calls and bytes of each group and
// kind of collective, as worker/comm counts them (bytes: the larger of input and output on the
// rank). Exact for a step that is not skipped; evaluation, and handing out weights, come on top.
#ifndef TESSERA_PLAN_STEP_TRAFFIC_H_
#define TESSERA_PLAN_STEP_TRAFFIC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "plan/mesh.h"
#include "plan/pipeline_schedule.h"
#include "plan/stage_partition.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {

enum class TrafficKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
};
inline constexpr TrafficKind kTrafficKinds[] = {
    TrafficKind::kAllReduce, TrafficKind::kReduceScatter, TrafficKind::kAllGather,
    TrafficKind::kBroadcast, TrafficKind::kAllToAll,      TrafficKind::kSend,
    TrafficKind::kRecv};
// "all_reduce", "reduce_scatter", ...: the names of worker/comm.
const char* TrafficKindName(TrafficKind kind);

enum class ContextParallelAttention : uint8_t { kRing, kAllGather, kUlysses };
enum class RecomputeKind : uint8_t { kNone, kAttention, kFull };
// When gradients are reduced over the zero group: after the last micro-batch, or after each.
enum class GradientReduction : uint8_t { kOnce, kPerMicroBatch };

// A job as far as its traffic depends on it, and which part of the model the rank holds.
struct TrafficRequest {
  ModelSizes model;
  MeshSize mesh;
  // The rank's, from PartitionStages. All else that coordinates decide is the same on every rank.
  std::vector<StageChunk> chunks;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;

  int64_t micro_batches = 1;
  int64_t micro_batch_size = 1;  // sequences
  int64_t sequence_length = 1;   // tokens of a whole sequence
  int64_t element_bytes = 4;     // of parameters and activations
  int64_t gradient_bytes = 4;    // of an element of a gradient

  bool sequence_parallel = false;
  ContextParallelAttention context_parallel = ContextParallelAttention::kRing;
  RecomputeKind recompute = RecomputeKind::kNone;
  LayerRange recompute_layers;  // of the whole model
  int zero_stage = 0;
  GradientReduction gradient_reduction = GradientReduction::kOnce;
  int64_t resident_parameters = 0;  // zero_stage 3: units of at most as many are not sharded
  bool clips_before_reduce = false;
  bool checks_replicated_gradients = false;
};

// Whether the unit's parameters are sharded, and so gathered before use.
bool IsGathered(const TrafficRequest& request, const UnitSize& unit);

struct TrafficCount {
  int64_t calls = 0;
  int64_t bytes = 0;  // of all calls; stops at the largest int64

  friend bool operator==(const TrafficCount&, const TrafficCount&) = default;
};

class StepTraffic {
 public:
  const TrafficCount& of(GroupAxis axis, TrafficKind kind) const {
    return counts_[static_cast<size_t>(axis)][static_cast<size_t>(kind)];
  }
  TrafficCount& of(GroupAxis axis, TrafficKind kind) {
    return counts_[static_cast<size_t>(axis)][static_cast<size_t>(kind)];
  }

 private:
  std::array<std::array<TrafficCount, std::size(kTrafficKinds)>, std::size(kGroupAxes)> counts_;
};

// REQUIRES: CheckLayout (plan/layout_check.h) has no fault; chunks is not empty.
StepTraffic PredictStepTraffic(const TrafficRequest& request);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_STEP_TRAFFIC_H_
