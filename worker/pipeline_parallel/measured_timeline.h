// What the ranks of a pipeline did, as a timeline to be drawn or traced.
#ifndef TESSERA_WORKER_PIPELINE_PARALLEL_MEASURED_TIMELINE_H_
#define TESSERA_WORKER_PIPELINE_PARALLEL_MEASURED_TIMELINE_H_

#include <string>
#include <vector>

#include "plan/timeline.h"
#include "worker/pipeline_parallel/pipeline_runner.h"

namespace tessera {

// ranks: by pp_rank, of one host, whose clock they share; one or more runs, the same on all, or
// what there is of one that failed. row_names: of each, as "workers/w0, pp_rank 0". Times from the
// earliest action. Categories, streams and flows as plan/pipeline_timeline.h.
// REQUIRES: as many names as ranks.
plan::Timeline MeasuredTimeline(const std::vector<std::vector<MeasuredAction>>& ranks,
                                std::vector<std::string> row_names, std::string title);

}  // namespace tessera

#endif  // TESSERA_WORKER_PIPELINE_PARALLEL_MEASURED_TIMELINE_H_
