// How all stages of a pipeline ran one step, on every one of them.
#ifndef TESSERA_WORKER_TRAINER_STEP_TIMELINE_H_
#define TESSERA_WORKER_TRAINER_STEP_TIMELINE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "plan/pipeline_schedule.h"
#include "plan/timeline.h"
#include "worker/comm/communicator.h"
#include "worker/pipeline_parallel/pipeline_runner.h"

namespace tessera {

// actions: the lists of all stages, by pp_rank; measured: this stage's, in the list's order. Only
// times travel: a broadcast from each stage. All members of pp call it. RESOURCE_EXHAUSTED from the
// arena.
absl::StatusOr<plan::Timeline> GatherTimeline(const std::vector<plan::StageActions>& actions,
                                              const std::vector<MeasuredAction>& measured,
                                              std::string title, Communicator& pp, Device& device,
                                              Stream& stream);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_STEP_TIMELINE_H_
