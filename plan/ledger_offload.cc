#include "plan/ledger_offload.h"

#include <algorithm>
#include <limits>

#include "plan/ledger_bytes.h"
#include "plan/offload.h"

namespace tessera::plan {
namespace {

constexpr int kStateBytes = 3 * 4;  // master, exp_avg and exp_avg_sq, fp32 each
constexpr int kPageBytes = 4096;    // buffers, and gradients on disk, start at a page

int ZeroGroupSize(const TrafficRequest& job) { return job.mesh.dp * job.mesh.cp; }

int64_t Bounded(BigSize value) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return value > kMax ? kMax : static_cast<int64_t>(value);
}

// What the tier of gradients holds of a unit: the sum of the group, or before it is reduced the
// rank's own.
BigSize OffloadedGradientElements(const TrafficRequest& job, const UnitSize& unit) {
  const bool holds_whole =
      job.gradient_reduction == GradientReduction::kOnce && job.micro_batches > 1;
  return holds_whole ? unit.padded_elements(ZeroGroupSize(job))
                     : unit.shard_elements(ZeroGroupSize(job));
}

}  // namespace

std::vector<UnitOffload> UnitOffloads(const LedgerRequest& request,
                                      const std::vector<UnitSize>& units) {
  std::vector<int64_t> elements;
  for (const UnitSize& unit : units) {
    elements.push_back(Bounded(unit.padded_elements(ZeroGroupSize(request.job))));
  }
  const OffloadOptions& options = request.offload;
  const std::vector<bool> optimizer = OffloadedUnits(options.optimizer, elements);
  const std::vector<bool> gradients = OffloadedUnits(options.gradients, elements);
  const std::vector<bool> parameters = OffloadedUnits(options.parameters, elements);
  std::vector<UnitOffload> offloads;
  for (size_t i = 0; i < units.size(); ++i) {
    offloads.push_back({optimizer[i], gradients[i], parameters[i]});
  }
  return offloads;
}

BigSize HeldStateElements(const TrafficRequest& job, const UnitSize& unit) {
  const int d = ZeroGroupSize(job);
  return job.zero_stage > 0 ? unit.shard_elements(d) : unit.padded_elements(d);
}

BigSize HeldParameterElements(const TrafficRequest& job, const UnitSize& unit) {
  const int d = ZeroGroupSize(job);
  return IsGathered(job, unit) ? unit.shard_elements(d) : unit.padded_elements(d);
}

BigSize PeakUpdateBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                        const std::vector<UnitOffload>& offloads) {
  const TrafficRequest& job = request.job;
  BigSize peak = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    BigSize bytes = 0;
    if (offloads[i].gradients) {
      bytes += AllocatedBytes(HeldStateElements(job, units[i]) * job.gradient_bytes);
    }
    if (offloads[i].parameters) {
      bytes += AllocatedBytes(HeldParameterElements(job, units[i]) * job.element_bytes);
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

BigSize HostStateBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                       const std::vector<UnitOffload>& offloads) {
  const TrafficRequest& job = request.job;
  const OffloadOptions& options = request.offload;
  BigSize bytes = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    if (offloads[i].optimizer && options.optimizer.tier == Tier::kHost) {
      bytes += AllocatedBytes(StateStrideElements(HeldStateElements(job, units[i])) * kStateBytes);
    }
    if (offloads[i].gradients && options.gradients.tier == Tier::kHost) {
      bytes += AllocatedBytes(OffloadedGradientElements(job, units[i]) * job.gradient_bytes);
    }
    if (offloads[i].parameters && options.parameters.tier == Tier::kHost) {
      bytes += AllocatedBytes(HeldParameterElements(job, units[i]) * job.element_bytes);
    }
  }
  if (options.uses_nvme()) {
    bytes += AllocatedBytes(BigSize(options.buffers) * options.buffer_bytes + kPageBytes);
  }
  return bytes;
}

BigSize NvmeBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                  const std::vector<UnitOffload>& offloads) {
  constexpr int kStepsHeld = 2;
  const TrafficRequest& job = request.job;
  const OffloadOptions& options = request.offload;
  BigSize step = 0, gradients = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    step += HeldStateElements(job, units[i]) * kStateBytes;
    if (offloads[i].parameters && options.parameters.tier == Tier::kNvme) {
      step += HeldParameterElements(job, units[i]) * job.element_bytes;
    }
    if (offloads[i].gradients && options.gradients.tier == Tier::kNvme) {
      // Direct IO moves whole pages.
      const BigSize bytes = OffloadedGradientElements(job, units[i]) * job.gradient_bytes;
      gradients += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    }
  }
  return (options.commits_steps() ? step * kStepsHeld : BigSize(0)) + gradients;
}

}  // namespace tessera::plan
