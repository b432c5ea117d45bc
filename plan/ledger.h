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
//   activations    of the micro-batches in flight, and what their passes share; a sample's cache
//   communication  what collectives alone read and write: units' gathered weights (zero_stage 3)
//   and
//                  whole gradients on the way to their reduction (2 and 3), pipeline messages,
//                  context-parallel buffers, weights and sums that ranks tell each other
//   workspace      attention's, and small tables and sums
#ifndef TESSERA_PLAN_LEDGER_H_
#define TESSERA_PLAN_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "plan/offload.h"
#include "plan/pipeline_schedule.h"
#include "plan/stage_partition.h"
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

// One rank of a job. Ranks of one pp_rank hold the same, but for samples and traces.
struct LedgerRequest {
  TrafficRequest job;        // job.chunks: the rank's
  ScheduleOptions schedule;  // of job.mesh.pp stages
  int pp_rank = 0;
  int prefetch_units = 1;  // zero_stage 3: gathered ahead of the one in use
  bool samples = false;    // the rank takes part in spec.sample, whose memory is held throughout
  bool traces = false;     // spec.trace: a step's times pass through the rank
  int num_threads = 1;     // of a CPU device, each with its own workspace; 0: another device
  OffloadOptions offload;
};

struct RankLedger {
  // Of each category the most that is held at once; stops at the largest int64.
  std::array<int64_t, std::size(kLedgerCategories)> peak_bytes = {};

  int64_t of(LedgerCategory category) const { return peak_bytes[static_cast<size_t>(category)]; }
  // The largest buffer that comes and goes in a step; 0: none does. Holes between such buffers may
  // keep as much from being used.
  int64_t headroom_bytes = 0;
  // Outside of the device, the most at once: in the pool of host memory, and on disk (two steps of
  // what is committed, and offloaded gradients). 0 without offloading.
  int64_t host_bytes = 0;
  int64_t nvme_bytes = 0;

  // Of all categories.
  int64_t total_bytes() const;
  // What a device must have: the total and the headroom.
  int64_t needed_bytes() const;
};

// To the byte what the arena's peaks will be, but for:
//   communication  groups whose members are on several hosts stage messages, 2 MiB a member at most
//   workspace      below fp32, weights pass through fp32 pieces as they are set; this is the most
//                  that a rank of the pp_rank needs
// REQUIRES: CheckLayout (plan/layout_check.h) has no fault; request.job.chunks is not empty.
RankLedger PredictLedger(const LedgerRequest& request);

// Of every pp_rank, whose chunks are stages[pp_rank] (PartitionStages); request.job.chunks and
// request.pp_rank are not read.
std::vector<RankLedger> PredictLedgers(LedgerRequest request,
                                       const std::vector<std::vector<StageChunk>>& stages);

// A total_bytes() that PredictLedger is not below, at once: without what comes and goes in a step.
int64_t PredictLeastBytes(LedgerRequest request);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_H_
