#include "plan/ledger_state.h"

#include <algorithm>

namespace tessera::plan {
namespace {

using enum LedgerCategory;
using Size = BigSize;

constexpr int kFp32Bytes = 4;
constexpr int kLossReducers = 3, kLossTotalsBytes = 24;
constexpr int kWeightsRequestBytes = 32;
// Weights are shared, and converted, by pieces of this.
constexpr int64_t kPieceElements = 1 << 20;

int ZeroGroupSize(const TrafficRequest& job) { return job.mesh.dp * job.mesh.cp; }
bool IsSharedRows(const TrafficRequest& job) { return job.sequence_parallel && job.mesh.tp > 1; }

void AddUnit(const TrafficRequest& job, const UnitSize& unit, const UnitOffload& offload,
             LedgerBytes& bytes) {
  const Size whole = unit.padded_elements(ZeroGroupSize(job));
  const Size shard = unit.shard_elements(ZeroGroupSize(job));
  if (!offload.parameters) {
    bytes.Allocate(kParameters, HeldParameterElements(job, unit) * job.element_bytes);
  }
  // Sums over several reductions have a place of their own.
  const bool accumulates =
      job.gradient_reduction == GradientReduction::kPerMicroBatch && job.micro_batches > 1;
  if (!offload.gradients) {
    if (job.zero_stage < 2) bytes.Allocate(kGradients, whole * job.gradient_bytes);
    if (job.zero_stage >= 2 || accumulates) bytes.Allocate(kGradients, shard * job.gradient_bytes);
  }
  if (offload.optimizer) return;
  const Size arrays = job.element_bytes == kFp32Bytes ? 2 : 3;
  bytes.Allocate(kOptimizer,
                 StateStrideElements(HeldStateElements(job, unit)) * arrays * kFp32Bytes);
}

// Where the parameters are in a unit, as worker/model/units.h has them.
bool IsKeyOrValue(const TrafficRequest& job, const UnitSize& unit, size_t i) {
  return job.model.is_llama && unit.kind == UnitKind::kLayer &&
         (i == 2 || i == 3 || i == 10 || i == 11);
}
bool IsRowParallelBias(const TrafficRequest& job, const UnitSize& unit, size_t i) {
  return !job.model.is_llama && unit.kind == UnitKind::kLayer && (i == 5 || i == 11);
}
bool IsNormOrPosition(const TrafficRequest& job, const UnitSize& unit, size_t i) {
  const bool llama = job.model.is_llama;
  switch (unit.kind) {
    case UnitKind::kEmbedding:
      return i == 1;
    case UnitKind::kLayer:
      return i == 0 || (llama ? i == 5 : i == 1 || i == 6 || i == 7);
    case UnitKind::kHead: {
      const size_t first = unit.least_elements > 0 ? 1 : 0;  // a tied embedding's copy
      return i >= first && i < first + (llama ? 1 : 2);
    }
  }
  return false;
}
// Matrices of which a tp rank has columns: its values are apart in the whole.
bool IsSplitByColumns(const TrafficRequest& job, const UnitSize& unit, size_t i) {
  if (job.mesh.tp == 1 || unit.kind != UnitKind::kLayer) return false;
  return job.model.is_llama ? i == 4 || i == 8 : i == 2 || i == 3 || i == 8;
}

// Whether all tp ranks compute the same gradient of it.
bool IsReplicated(const TrafficRequest& job, const UnitSize& unit, size_t i) {
  if (job.mesh.tp == 1) return false;
  return IsRowParallelBias(job, unit, i) || (!IsSharedRows(job) && IsNormOrPosition(job, unit, i));
}

Size LargestReplicated(const TrafficRequest& job, const std::vector<UnitSize>& units) {
  Size largest = 0;
  for (const UnitSize& unit : units) {
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      if (IsReplicated(job, unit, i)) largest = std::max(largest, unit.parameters[i]);
    }
  }
  return largest;
}

// Gradients on their way to other ranks that hold the same parameters (worker/trainer's
// GradientSync).
Size SharedGradientElements(const TrafficRequest& job, const std::vector<UnitSize>& units) {
  Size largest = job.checks_replicated_gradients ? LargestReplicated(job, units) : Size(0);
  for (const UnitSize& unit : units) {
    if (unit.least_elements > 0) {
      const int d = ZeroGroupSize(job);
      largest = std::max(
          largest, job.clips_before_reduce ? unit.padded_elements(d) : unit.shard_elements(d));
    }
    if (job.model.kv_heads >= job.mesh.tp) continue;
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      // All kv heads' from one's.
      if (!IsKeyOrValue(job, unit, i)) continue;
      largest = std::max(largest, unit.parameters[i] * job.model.kv_heads);
    }
  }
  return largest;
}

// Most elements of `count` from `begin` on that lie in one shard.
Size LargestInOneShard(Size begin, Size count, Size shard) {
  const Size rest = shard - begin % shard;  // of the first shard
  if (count <= rest) return count;
  const Size behind = count - rest;
  return behind >= shard ? shard : std::max(rest, behind);
}

Size LargestWrite(const TrafficRequest& job, const UnitSize& unit) {
  const Size shard = unit.shard_elements(ZeroGroupSize(job));
  Size largest = 0, begin = 0;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const Size count = unit.parameters[i];
    if (!IsSplitByColumns(job, unit, i)) {
      largest =
          std::max(largest, IsGathered(job, unit) ? LargestInOneShard(begin, count, shard) : count);
    }
    begin += (count + kUnitAlignmentElements - 1) / kUnitAlignmentElements * kUnitAlignmentElements;
  }
  return largest;
}

}  // namespace

LedgerBytes ModelStateBytes(const TrafficRequest& job, const std::vector<UnitSize>& units,
                            const std::vector<UnitOffload>& offloads) {
  LedgerBytes bytes;
  Size norms = 1;  // one for their sum
  for (size_t i = 0; i < units.size(); ++i) {
    AddUnit(job, units[i], offloads[i], bytes);
    norms += units[i].parameters.size();
  }
  bytes.Allocate(kWorkspace, norms * kFp32Bytes);
  bytes.Allocate(kCommunication, SharedGradientElements(job, units) * job.gradient_bytes);
  bytes.Allocate(kCommunication, kLossTotalsBytes, kLossReducers);
  bytes.Allocate(kCommunication, kWeightsRequestBytes);
  const bool is_split = job.zero_stage > 0 || job.mesh.pp * job.mesh.tp > 1;
  if (is_split) bytes.Allocate(kCommunication, kPieceElements * kFp32Bytes);
  return bytes;
}

BigSize ConversionBytes(const LedgerRequest& request, const std::vector<UnitSize>& units) {
  const TrafficRequest& job = request.job;
  Size elements = 0;
  if (job.element_bytes != kFp32Bytes) {
    for (const UnitSize& unit : units) elements = std::max(elements, LargestWrite(job, unit));
    // Logits, of which a sample's next token is picked.
    const Size tp = job.mesh.tp;
    const Size logits = (job.model.vocab_size + tp - 1) / tp * tp;
    if (request.samples) elements = std::max(elements, logits);
  }
  if (job.gradient_bytes != kFp32Bytes && job.checks_replicated_gradients) {
    elements = std::max(elements, LargestReplicated(job, units));
  }
  if (elements == 0) return 0;
  return AllocatedBytes(std::min<Size>(elements, kPieceElements) * kFp32Bytes);
}

}  // namespace tessera::plan
