// A pipeline, simulated or measured, as a timeline to be drawn or traced.
#ifndef TESSERA_PLAN_PIPELINE_TIMELINE_H_
#define TESSERA_PLAN_PIPELINE_TIMELINE_H_

#include <string>
#include <vector>

#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulation.h"
#include "plan/timeline.h"

namespace tessera::plan {

SliceCategory CategoryOf(ActionKind kind);

// An action as it was or would be; times from any common origin.
struct TimedAction {
  Action action;
  double begin_s = 0;
  double end_s = 0;  // of a receive: when it has the message
};

// stages: by pp_rank, what each did in its order; row_names: of each. Streams "compute", "send",
// "receive". A flow for each message: between a pair of ranks the k-th send is the k-th receive;
// one whose other end is not there, as in a run that has failed, has none. A receive's slice is the
// time that the stage waits for it. REQUIRES: as many names as stages.
Timeline TimelineOf(const std::vector<std::vector<TimedAction>>& stages,
                    std::vector<std::string> row_names, std::string title);

// Rows "pp_rank 0", ...
Timeline TimelineOf(const PipelineSimulation& simulation, std::string title);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_PIPELINE_TIMELINE_H_
