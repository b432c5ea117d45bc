// What states of jobs have in common.
#ifndef TESSERA_COORDINATOR_JOB_STATE_H_
#define TESSERA_COORDINATOR_JOB_STATE_H_

#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// Reason of the condition of a job whose workers are there but busy.
inline constexpr char kWaitingForWorkers[] = "WAITING_FOR_WORKERS";

// Nothing follows.
inline bool IsEnded(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

// The job, which has no workers now, goes on where its workers hold its state. After no step at
// all it may as well start from the beginning, anywhere.
inline bool AwaitsState(const v1::TrainingJobStatus& status) {
  return !status.placement().empty() && !(status.has_saved_step() && status.saved_step() == 0);
}

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_JOB_STATE_H_
