#include "plan/pipeline_formulas.h"

#include <algorithm>

namespace tessera::plan {

double BubbleFormula(const ScheduleOptions& options, const ChunkCosts& costs) {
  const double forward_and_backward = costs.forward_s + costs.backward_input_s;
  const double all = forward_and_backward + costs.backward_weight_s;
  const int others = options.stages - 1;
  const int beyond_round = options.micro_batches % options.stages;
  const int missing = beyond_round == 0 ? 0 : options.stages - beyond_round;
  const int filling = std::min(options.micro_batches, options.stages) - 1;
  switch (options.schedule) {
    case PipelineSchedule::kNaive:
      return static_cast<double>(others) * options.micro_batches * all;
    case PipelineSchedule::kGpipe:
    case PipelineSchedule::k1f1b:
      return others * all;
    case PipelineSchedule::kInterleaved1f1b:
      return (others + static_cast<double>(missing) * (options.chunks - 1)) * all;
    case PipelineSchedule::kZeroBubbleH1:
      return others * forward_and_backward - filling * costs.backward_weight_s;
  }
  return 0;
}

int PeakInFlightFormula(const ScheduleOptions& options, int pp_rank) {
  const int after = options.stages - 1 - pp_rank;
  switch (options.schedule) {
    case PipelineSchedule::kNaive:
    case PipelineSchedule::kGpipe:
      return options.micro_batches;
    case PipelineSchedule::k1f1b:
    case PipelineSchedule::kZeroBubbleH1:
      return std::min(options.micro_batches, after + 1);
    case PipelineSchedule::kInterleaved1f1b:
      return std::min(options.micro_batches * options.chunks,
                      (options.chunks - 1) * options.stages + 2 * after + 1);
  }
  return 0;
}

int PeakInFlightForWeightsFormula(const ScheduleOptions& options, int pp_rank) {
  if (options.schedule == PipelineSchedule::kZeroBubbleH1) pp_rank = 0;
  return PeakInFlightFormula(options, pp_rank);
}

}  // namespace tessera::plan
