#include "plan/ledger_schedule.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "plan/pipeline_formulas.h"

namespace tessera::plan {
namespace {

// Keeps all micro-batches from their forward to the backwards at the end.
bool KeepsAll(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::kNaive || schedule == PipelineSchedule::kGpipe;
}

// With so many every stage has seen its warm-up, its steady state and its end.
int EnoughMicroBatches(const ScheduleOptions& options) {
  if (KeepsAll(options.schedule)) return 4;
  return 4 * options.stages;
}

}  // namespace

ScheduleOptions ShortenedSchedule(const ScheduleOptions& options) {
  ScheduleOptions shortened = options;
  const int enough = EnoughMicroBatches(options);
  if (options.micro_batches <= enough) return shortened;
  // interleaved_1f1b goes in rounds of p, of which the last may be smaller.
  const bool has_rounds = options.schedule == PipelineSchedule::kInterleaved1f1b;
  const int rest = has_rounds ? (options.micro_batches - enough) % options.stages : 0;
  shortened.micro_batches = enough + rest;
  return shortened;
}

std::vector<int> PeakMicroBatches(const ScheduleOptions& options, const StageActions& actions) {
  if (KeepsAll(options.schedule)) return {options.micro_batches};
  using MicroBatch = std::pair<int, int>;  // chunk, micro_batch
  std::map<MicroBatch, size_t> actions_left;
  for (const Action& action : actions) ++actions_left[{action.chunk, action.micro_batch}];
  std::map<MicroBatch, size_t> held = actions_left;
  std::vector<int> now(options.chunks), peak(options.chunks);
  for (const Action& action : actions) {
    const MicroBatch of{action.chunk, action.micro_batch};
    size_t& left = held[of];
    if (left == actions_left[of]) ++now[action.chunk];
    peak[action.chunk] = std::max(peak[action.chunk], now[action.chunk]);
    if (--left == 0) --now[action.chunk];
  }
  return peak;
}

std::vector<int> LeastMicroBatches(const ScheduleOptions& options, int pp_rank) {
  if (options.schedule == PipelineSchedule::kInterleaved1f1b) {
    return std::vector<int>(options.chunks, 1);
  }
  return {PeakInFlightForWeightsFormula(options, pp_rank)};
}

}  // namespace tessera::plan
