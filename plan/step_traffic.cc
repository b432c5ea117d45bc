#include "plan/step_traffic.h"

#include <algorithm>
#include <limits>

#include "absl/numeric/int128.h"

namespace tessera::plan {
namespace {

using enum TrafficKind;
using Size = BigSize;

constexpr int kFp32Bytes = 4;
// What is summed over ranks once or more in a step.
constexpr int kValidTargetsBytes = 8;  // an int64
constexpr int kLossTotalsBytes = 24;   // three of them
constexpr int kFlagBytes = 8;          // whether somebody wants the weights
constexpr int kNormBytes = 4;

// Reductions of every gradient in a step.
Size ReductionsOf(const TrafficRequest& request) {
  const bool each = request.gradient_reduction == GradientReduction::kPerMicroBatch;
  return each ? request.micro_batches : 1;
}

// How often a step gathers a unit whose parameters are sharded: before its forward and its
// backward; what follows without another unit between uses it as it is.
Size GathersOf(const TrafficRequest& request, const UnitSize& unit) {
  const Size m = request.micro_batches;
  switch (unit.kind) {
    case UnitKind::kEmbedding:
      // Backward needs gradients alone. A tied one is the head's matrix as well.
      return request.model.tied_embeddings && request.mesh.pp == 1 ? 2 * m : m;
    case UnitKind::kHead:
      return m;  // forward and backward in one
    case UnitKind::kLayer:
      break;
  }
  const LayerRange& again = request.recompute_layers;
  const bool recomputes = request.recompute != RecomputeKind::kNone && unit.layer >= again.first &&
                          unit.layer < again.end();
  const bool is_apart = request.schedule == PipelineSchedule::kZeroBubbleH1;
  return recomputes && is_apart ? 3 * m : 2 * m;
}

// The numbers that the rules below are made of. Legend: M rows (tokens) of a micro-batch on a rank,
// C hidden_size, H head_size, N query and G kv heads of a tp rank, s and g bytes of an element and
// of a gradient's.
struct Sizes {
  explicit Sizes(const TrafficRequest& request);

  bool shards_rows;  // sequence parallelism
  bool zero_bubble;  // backward_input and backward_weight come apart
  bool has_embedding = false;
  bool has_head = false;
  Size layers = 0;        // of the rank
  Size recomputed = 0;    // of those, the layers that recompute
  Size recomputes;        // how often in a backward
  Size norms;             // parameters of a norm: weight, and of gpt2 bias
  Size rows;              // M
  Size stage_rows;        // M, or M / tp with sequence parallelism: what stages send
  Size heads;             // N
  Size kv_heads;          // G
  Size hidden;            // C, likewise wide
  Size activation_bytes;  // M*C*s
};

Sizes::Sizes(const TrafficRequest& request) {
  const int tp = request.mesh.tp;
  shards_rows = request.sequence_parallel && tp > 1;
  zero_bubble = request.schedule == PipelineSchedule::kZeroBubbleH1;
  const LayerRange& again = request.recompute_layers;
  for (const StageChunk& chunk : request.chunks) {
    has_embedding |= chunk.has_embedding;
    has_head |= chunk.has_head;
    layers += chunk.layers.count;
    if (request.recompute == RecomputeKind::kNone) continue;
    recomputed += std::max(
        0, std::min(chunk.layers.end(), again.end()) - std::max(chunk.layers.first, again.first));
  }
  recomputes = zero_bubble ? 2 : 1;
  norms = request.model.is_llama ? 1 : 2;
  rows = Size(request.micro_batch_size) * (request.sequence_length / request.mesh.cp);
  stage_rows = shards_rows ? rows / tp : rows;
  heads = request.model.heads / tp;
  kv_heads = std::max<int64_t>(request.model.kv_heads / tp, 1);
  hidden = request.model.hidden_size;
  activation_bytes = rows * hidden * request.element_bytes;
}

// Counts the calls of one group.
class Counter {
 public:
  Counter(GroupAxis axis, StepTraffic& traffic) : axis_(axis), traffic_(traffic) {}

  void Add(TrafficKind kind, Size calls, Size bytes_each) {
    if (calls == 0) return;
    TrafficCount& count = traffic_.of(axis_, kind);
    count.calls = Bounded(count.calls + calls);
    count.bytes = Bounded(count.bytes + calls * bytes_each);
  }
  void Exchange(Size messages, Size bytes_each) {
    Add(kSend, messages, bytes_each);
    Add(kRecv, messages, bytes_each);
  }

 private:
  static int64_t Bounded(Size value) {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    return value > kMax ? kMax : static_cast<int64_t>(value);
  }

  const GroupAxis axis_;
  StepTraffic& traffic_;
};

// Activations and their gradients between the parts of a layer (arXiv 1909.08053, section 3; with
// sequence parallelism 2205.05198, section 4.2.2).
void AddTpActivations(const TrafficRequest& request, const Sizes& at, Counter& tp) {
  const Size m = request.micro_batches, bytes = at.activation_bytes;
  const Size layers = m * at.layers, again = m * at.recomputed * at.recomputes;
  const Size embedding = at.has_embedding ? m : 0, head = at.has_head ? m : 0;
  const bool full = request.recompute == RecomputeKind::kFull;
  if (!at.shards_rows) {
    tp.Add(kAllReduce, 2 * layers, bytes);        // forward
    tp.Add(kAllReduce, 2 * layers, bytes);        // backward
    tp.Add(kAllReduce, full ? again : 0, bytes);  // recompute
    tp.Add(kAllReduce, embedding, bytes);         // forward
    tp.Add(kAllReduce, head, bytes);              // backward
  } else {
    tp.Add(kAllGather, 2 * layers, bytes);  // forward
    tp.Add(kReduceScatter, 2 * layers, bytes);
    tp.Add(kAllGather, 4 * layers, bytes);  // backward: 2 output gradients, 2 inputs
    tp.Add(kReduceScatter, 2 * layers, bytes);
    tp.Add(kAllGather, at.zero_bubble ? 2 * layers : 0, bytes);  // output gradients once more
    tp.Add(kAllGather, full ? 2 * again : again, bytes);         // recompute
    tp.Add(kReduceScatter, full ? again : 0, bytes);
    tp.Add(kReduceScatter, embedding, bytes);  // forward
    tp.Add(kAllGather, embedding, bytes);      // backward
    tp.Add(kAllGather, head, bytes);           // forward
    tp.Add(kAllGather, head, bytes);           // backward
    tp.Add(kReduceScatter, head, bytes);
  }
  // Maximum, sum and target of each row's logits.
  tp.Add(kAllGather, 3 * head, at.rows * request.mesh.tp * kFp32Bytes);
}

// With every reduction over the zero group, before it: gradients of what several ranks hold.
void AddTpGradients(const TrafficRequest& request, const Sizes& at, Counter& tp) {
  const Size c = at.hidden, g = request.gradient_bytes;
  const Size checks = request.checks_replicated_gradients ? 1 : 0;
  // Each rank has seen its own rows alone, or all ranks have seen all rows.
  const TrafficKind kind = at.shards_rows ? kAllReduce : kBroadcast;
  const Size reductions = ReductionsOf(request);
  const Size times = reductions * (at.shards_rows ? Size(1) : checks);
  const bool has_positions = at.has_embedding && !request.model.is_llama;
  tp.Add(kind, times * at.norms * 2 * at.layers, c * g);
  tp.Add(kind, times * at.norms * (at.has_head ? 1 : 0), c * g);
  tp.Add(kind, has_positions ? times : 0, c * request.model.context_length * g);
  // Biases after row-parallel products.
  tp.Add(kBroadcast, request.model.is_llama ? 0 : reductions * checks * 2 * at.layers, c * g);
  if (request.model.kv_heads >= request.mesh.tp) return;
  const Size kv = Size(request.model.kv_heads) * request.model.head_size;
  tp.Add(kAllReduce, reductions * 2 * at.layers, kv * c * g);
  tp.Add(kAllReduce, request.model.attention_bias ? reductions * 2 * at.layers : 0, kv * g);
}

// Of groups along which a model is split.
void AddNorms(const TrafficRequest& request, Counter& group) {
  group.Add(kAllReduce, request.clips_before_reduce ? 2 : 1, kNormBytes);
  group.Add(kAllReduce, 1, kFlagBytes);
}

void AddTp(const TrafficRequest& request, const Sizes& at, Counter tp) {
  if (request.mesh.tp == 1) return;
  AddTpActivations(request, at, tp);
  AddTpGradients(request, at, tp);
  AddNorms(request, tp);
}

void AddPp(const TrafficRequest& request, const Sizes& at, Counter pp) {
  if (request.mesh.pp == 1) return;
  // An activation to the next chunk and its gradient back; from the previous one likewise.
  Size neighbours = 2 * Size(request.chunks.size());
  neighbours -= (at.has_embedding ? 1 : 0) + (at.has_head ? 1 : 0);
  pp.Exchange(request.micro_batches * neighbours,
              at.stage_rows * at.hidden * request.element_bytes);
  // A tied embedding's gradient: shards of the reduced one, or all before it is clipped.
  for (const UnitSize& unit : UnitSizesOf(request.model, request.mesh, request.chunks)) {
    const int d = request.mesh.dp * request.mesh.cp;
    const Size part =
        request.clips_before_reduce ? unit.padded_elements(d) : unit.shard_elements(d);
    pp.Exchange(unit.least_elements > 0 ? 1 : 0, part * request.gradient_bytes);
  }
  pp.Add(kAllReduce, 1, kLossTotalsBytes);
  AddNorms(request, pp);
}

void AddCp(const TrafficRequest& request, const Sizes& at, Counter cp) {
  if (request.mesh.cp == 1) return;
  const Size size = request.mesh.cp, s = request.element_bytes;
  const Size backwards = request.micro_batches * at.layers;
  const Size forwards = backwards + request.micro_batches * at.recomputed * at.recomputes;
  const Size keys_values =
      at.rows * 2 * at.kv_heads * request.model.head_size;  // elements of K and V
  switch (request.context_parallel) {
    case ContextParallelAttention::kRing:
      cp.Exchange(forwards * (size - 1), keys_values * s);
      cp.Exchange(backwards * (size - 1), keys_values * s);
      cp.Exchange(backwards * (size - 1), keys_values * kFp32Bytes);  // their gradients
      break;
    case ContextParallelAttention::kAllGather:
      cp.Add(kAllGather, forwards, size * keys_values * s);
      cp.Add(kAllGather, backwards, size * keys_values * s);
      cp.Add(kReduceScatter, backwards, size * keys_values * kFp32Bytes);
      break;
    case ContextParallelAttention::kUlysses: {
      // Heads of a cp rank while it has whole sequences; kv heads are repeated where cp exceeds
      // them, and their gradients are then summed in fp32.
      const Size n = at.heads / size, kv = std::max<Size>(at.kv_heads / size, 1);
      const Size head = size * at.rows * request.model.head_size;  // elements for each head
      const bool repeats = size > at.kv_heads;
      cp.Add(kAllToAll, forwards, head * (n + 2 * kv) * s);       // q, k, v
      cp.Add(kAllToAll, forwards, head * n * s);                  // output
      cp.Add(kAllToAll, backwards, head * (3 * n + 2 * kv) * s);  // q, k, v, output, its gradient
      cp.Add(kAllToAll, backwards, head * (repeats ? n : n + 2 * kv) * s);
      cp.Add(kAllToAll, repeats ? backwards : 0, head * 2 * kv * kFp32Bytes);
      break;
    }
  }
}

// Also in a group of one.
void AddDp(Counter dp) { dp.Add(kAllReduce, 1, kValidTargetsBytes); }

// Also in a group of one, but for the flag.
void AddZero(const TrafficRequest& request, Counter zero) {
  const int size = request.mesh.dp * request.mesh.cp;
  for (const UnitSize& unit : UnitSizesOf(request.model, request.mesh, request.chunks)) {
    const Size elements = unit.padded_elements(size);
    zero.Add(kReduceScatter, ReductionsOf(request), elements * request.gradient_bytes);
    if (request.zero_stage == 0) {
      zero.Add(kAllGather, 1, elements * request.gradient_bytes);
    } else {
      zero.Add(kAllGather, IsGathered(request, unit) ? GathersOf(request, unit) : Size(1),
               elements * request.element_bytes);
    }
  }
  zero.Add(kAllReduce, 1, kLossTotalsBytes);
  zero.Add(kAllReduce, 1, kNormBytes);
  zero.Add(kAllReduce, size > 1 ? 1 : 0, kFlagBytes);
}

}  // namespace

const char* TrafficKindName(TrafficKind kind) {
  switch (kind) {
    case kAllReduce:
      return "all_reduce";
    case kReduceScatter:
      return "reduce_scatter";
    case kAllGather:
      return "all_gather";
    case kBroadcast:
      return "broadcast";
    case kAllToAll:
      return "all_to_all";
    case kSend:
      return "send";
    case kRecv:
      return "recv";
  }
  return "unknown";
}

bool IsGathered(const TrafficRequest& request, const UnitSize& unit) {
  return request.zero_stage == 3 && unit.parameter_elements() > request.resident_parameters;
}

StepTraffic PredictStepTraffic(const TrafficRequest& request) {
  const Sizes at(request);
  StepTraffic traffic;
  AddDp({GroupAxis::kDp, traffic});
  AddCp(request, at, {GroupAxis::kCp, traffic});
  AddPp(request, at, {GroupAxis::kPp, traffic});
  AddTp(request, at, {GroupAxis::kTp, traffic});
  AddZero(request, {GroupAxis::kZero, traffic});
  return traffic;
}

}  // namespace tessera::plan
