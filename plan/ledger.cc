#include "plan/ledger.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "plan/ledger_activations.h"
#include "plan/ledger_bytes.h"
#include "plan/ledger_offload.h"
#include "plan/ledger_schedule.h"
#include "plan/ledger_state.h"
#include "plan/unit_buffers_replay.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {
namespace {

using enum LedgerCategory;

int64_t Bounded(BigSize value) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return value > kMax ? kMax : static_cast<int64_t>(value);
}

// Begin and end of each action, of one stage at a time: of the stage with most actions.
BigSize TimelineBytes(const ScheduleOptions& options) {
  constexpr int kTimesBytes = 2 * 8;
  const int computations = options.schedule == PipelineSchedule::kZeroBubbleH1 ? 3 : 2;
  // An activation and a gradient come and go with each chunk, but at both ends of the pipeline.
  const int ends = options.stages == 2 ? 2 : 0;
  const int messages = options.stages == 1 ? 0 : 4 * options.chunks - ends;
  return AllocatedBytes(BigSize(options.micro_batches) *
                        (options.chunks * computations + messages) * kTimesBytes);
}

// In a group of one there is nothing to shard.
LedgerRequest Effective(LedgerRequest request) {
  if (request.job.mesh.dp * request.job.mesh.cp == 1) request.job.zero_stage = 0;
  return request;
}

// All that is held from the first step to the last.
LedgerBytes HeldBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                      const std::vector<int>& micro_batches) {
  LedgerBytes bytes = ModelStateBytes(request.job, units, UnitOffloads(request, units));
  bytes.Add(StageBytes(request, micro_batches));
  if (request.samples) bytes.Add(SamplerBytes(request));
  return bytes;
}

std::vector<UnitSize> UnitsOf(const LedgerRequest& request) {
  return UnitSizesOf(request.job.model, request.job.mesh, request.job.chunks);
}

RankLedger ToLedger(const LedgerBytes& bytes) {
  RankLedger ledger;
  for (const LedgerCategory category : kLedgerCategories) {
    ledger.peak_bytes[static_cast<size_t>(category)] = Bounded(bytes.of(category));
  }
  return ledger;
}

// Of weights that are gathered or fetched, and of whole gradients on their way to their reduction.
BigSize LargestUnitBufferBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                               const std::vector<UnitOffload>& offloads) {
  const TrafficRequest& job = request.job;
  BigSize largest = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const BigSize elements = units[i].padded_elements(job.mesh.dp * job.mesh.cp);
    if (job.zero_stage >= 2 || offloads[i].gradients) {
      largest = std::max(largest, AllocatedBytes(elements * job.gradient_bytes));
    }
    if (IsGathered(job, units[i]) || offloads[i].parameters) {
      largest = std::max(largest, AllocatedBytes(elements * job.element_bytes));
    }
  }
  return largest;
}

// Whether memory depends on the order of actions, besides how many micro-batches are in flight.
bool NeedsSchedule(const LedgerRequest& request) {
  return request.job.zero_stage >= 2 || request.offload.gradients.is_on() ||
         request.offload.parameters.is_on() ||
         request.schedule.schedule == PipelineSchedule::kInterleaved1f1b;
}

// Of all stages; empty where they are not needed: that of many stages takes seconds to make.
std::vector<StageActions> ScheduleFor(const LedgerRequest& request) {
  if (!NeedsSchedule(request)) return std::vector<StageActions>(request.schedule.stages);
  return *MakeSchedule(ShortenedSchedule(request.schedule));
}

// actions: the rank's of ScheduleFor.
RankLedger PredictFor(const LedgerRequest& request, const StageActions& actions) {
  const std::vector<UnitSize> units = UnitsOf(request);
  const std::vector<int> micro_batches = NeedsSchedule(request)
                                             ? PeakMicroBatches(request.schedule, actions)
                                             : LeastMicroBatches(request.schedule, request.pp_rank);
  LedgerBytes bytes = HeldBytes(request, units, micro_batches);
  // These are held at different times.
  const BigSize timeline = request.traces ? TimelineBytes(request.schedule) : BigSize(0);
  const std::vector<UnitOffload> offloads = UnitOffloads(request, units);
  bytes.AddTransient(kCommunication,
                     std::max({timeline, PeakUnitBufferBytes(request, units, actions),
                               PeakUpdateBytes(request, units, offloads)}));
  bytes.AddTransient(kWorkspace, ConversionBytes(request, units));
  RankLedger ledger = ToLedger(bytes);
  ledger.headroom_bytes = Bounded(LargestUnitBufferBytes(request, units, offloads));
  ledger.host_bytes = Bounded(HostStateBytes(request, units, offloads) +
                              WaitingActivationBytes(request, micro_batches));
  ledger.nvme_bytes = Bounded(NvmeBytes(request, units, offloads));
  return ledger;
}

}  // namespace

const char* LedgerCategoryName(LedgerCategory category) {
  switch (category) {
    case kParameters:
      return "parameters";
    case kGradients:
      return "gradients";
    case kOptimizer:
      return "optimizer";
    case kActivations:
      return "activations";
    case kCommunication:
      return "communication";
    case kWorkspace:
      return "workspace";
  }
  return "unknown";
}

int64_t RankLedger::total_bytes() const {
  BigSize total = 0;
  for (const int64_t bytes : peak_bytes) total += bytes;
  return Bounded(total);
}

int64_t RankLedger::needed_bytes() const {
  return Bounded(BigSize(total_bytes()) + headroom_bytes);
}

RankLedger PredictLedger(const LedgerRequest& request) {
  const LedgerRequest effective = Effective(request);
  return PredictFor(effective, ScheduleFor(effective)[request.pp_rank]);
}

std::vector<RankLedger> PredictLedgers(LedgerRequest request,
                                       const std::vector<std::vector<StageChunk>>& stages) {
  request = Effective(std::move(request));
  const std::vector<StageActions> schedule = ScheduleFor(request);
  std::vector<RankLedger> ledgers;
  for (int pp_rank = 0; pp_rank < static_cast<int>(stages.size()); ++pp_rank) {
    request.pp_rank = pp_rank;
    request.job.chunks = stages[pp_rank];
    ledgers.push_back(PredictFor(request, schedule[pp_rank]));
  }
  return ledgers;
}

int64_t PredictLeastBytes(LedgerRequest request) {
  request = Effective(std::move(request));
  const std::vector<int> micro_batches = LeastMicroBatches(request.schedule, request.pp_rank);
  return ToLedger(HeldBytes(request, UnitsOf(request), micro_batches)).total_bytes();
}

}  // namespace tessera::plan
