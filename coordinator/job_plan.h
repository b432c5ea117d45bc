// What would become of a job: a pure function of its spec.
#ifndef TESSERA_COORDINATOR_JOB_PLAN_H_
#define TESSERA_COORDINATOR_JOB_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/tessera/v1/plan.pb.h"

namespace tessera {

// A longer schedule is not simulated: computations (chunks of micro-batches) of all stages.
inline constexpr int64_t kMaxSimulatedComputations = 65536;
// A schedule with more actions is not drawn; the largest drawing has about 10 MB.
inline constexpr int64_t kMaxDrawnActions = 32768;

// INVALID_ARGUMENT, UNIMPLEMENTED: as ValidateSpec (coordinator/spec_validation.h);
// INVALID_ARGUMENT also for a timeline that is not a value or would be too large. Takes about a
// second for any spec of up to 256 stages; of 1024, the most there can be, some 15 seconds, as
// every stage's actions are gone through for its memory. num_threads: of the workers' devices,
// which have a workspace for each.
absl::StatusOr<v1::PlanTrainingJobResponse> PlanJob(const v1::PlanTrainingJobRequest& request,
                                                    int num_threads = 1);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_JOB_PLAN_H_
