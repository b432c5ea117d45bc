// Closed formulas of pipeline schedules, of the papers named in plan/pipeline_schedule.h.
#ifndef TESSERA_PLAN_PIPELINE_FORMULAS_H_
#define TESSERA_PLAN_PIPELINE_FORMULAS_H_

#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulation.h"

namespace tessera::plan {

// REQUIRES in all: CheckSchedule is OK; 0 <= pp_rank < p.

// Seconds that each stage idles in a step; F, B, W are costs of one chunk, latency is not in it.
//   naive             (p - 1) m (F + B + W): all but 1/p of the step
//   gpipe, 1f1b       (p - 1)(F + B + W)
//   interleaved_1f1b  (p - 1)(F + B + W), and a chunk is 1/v of a stage (2104.04473,
//   section 2.2.2).
//                     With r micro-batches missing to a multiple of p, r (v - 1)(F + B + W) more:
//                     exact for m < p, an upper bound (own finding) for m > p.
//   zero_bubble_h1    (p - 1)(F + B - W) (2401.10241, table 1) if W <= min(F, B), else more. With
//                     m < p fewer weight gradients fill it: (p - 1)(F + B) - (m - 1) W.
double BubbleFormula(const ScheduleOptions& options, const ChunkCosts& costs);

// (chunk, micro-batch) pairs in flight on a stage at most, in the sense of
// SimulatedStage::peak_in_flight. Divided by v: micro-batches through the whole stage.
//   naive, gpipe           m
//   1f1b, zero_bubble_h1   min(m, p - pp_rank)
//   interleaved_1f1b       min(m v, (v - 1) p + 2 (p - 1 - pp_rank) + 1); on stage 0 that is 1f1b's
//                          p times 1 + (p - 1)/(p v). A bound if p does not divide m.
int PeakInFlightFormula(const ScheduleOptions& options, int pp_rank);

// The same until weight gradients are done: zero_bubble_h1 min(m, p) on every stage.
int PeakInFlightForWeightsFormula(const ScheduleOptions& options, int pp_rank);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_PIPELINE_FORMULAS_H_
