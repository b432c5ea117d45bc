// The byte ledger: what a rank will hold of its device's memory, by category, before the job has
// started. The arena (kernels/arena.h) measures the same categories, and both are shown side by
// side.
//
// What is in which category, of a rank with zero group size d = dp * cp:
//   parameters     weights in the job's precision: whole, or with zero_stage 3 the rank's shards
//   gradients      whole with zero_stage 0 and 1, shards with 2 and 3; with gradients reduced per
//                  micro-batch the accumulated shards as well
//   optimizer      AdamW's moments and, below fp32, the fp32 master: whole with zero_stage 0, else
//                  shards
//   activations    of the micro-batches in flight, and what their passes share
//   communication  what collectives read and write: units' gathered weights (zero_stage 3) and
//                  whole gradients on the way to their reduction (2 and 3), pipeline messages,
//                  context-parallel and tensor-parallel buffers
//   workspace      small tables and sums
#ifndef TESSERA_PLAN_LEDGER_H_
#define TESSERA_PLAN_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "plan/pipeline_schedule.h"
#include "plan/step_traffic.h"

namespace tessera::plan {

enum class LedgerCategory : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspace,
};
inline constexpr LedgerCategory kLedgerCategories[] = {
    LedgerCategory::kParameters,  LedgerCategory::kGradients,     LedgerCategory::kOptimizer,
    LedgerCategory::kActivations, LedgerCategory::kCommunication, LedgerCategory::kWorkspace};
// "parameters", ...: the names of kernels/arena.h.
const char* LedgerCategoryName(LedgerCategory category);

// One rank of a job. Ranks of one pp_rank hold the same, but for the sample.
struct LedgerRequest {
  TrafficRequest job;        // job.chunks: the rank's
  ScheduleOptions schedule;  // of job.mesh.pp stages
  int pp_rank = 0;
  int prefetch_units = 1;  // zero_stage 3: gathered ahead of the one in use
  bool samples = false;    // the rank takes part in spec.sample, whose memory is taken first
};

struct RankLedger {
  // Of each category the most that is held at once; stops at the largest int64.
  std::array<int64_t, std::size(kLedgerCategories)> peak_bytes = {};

  int64_t of(LedgerCategory category) const { return peak_bytes[static_cast<size_t>(category)]; }
  // Of all categories: a device of this capacity is enough, apart from fragmentation.
  int64_t total_bytes() const;
};

// REQUIRES: CheckLayout (plan/layout_check.h) has no fault; request.job.chunks is not empty.
RankLedger PredictLedger(const LedgerRequest& request);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_H_
