// Folds step reports into a job's progress: pure functions.
#ifndef TESSERA_COORDINATOR_JOB_PROGRESS_H_
#define TESSERA_COORDINATOR_JOB_PROGRESS_H_

#include <cstdint>

#include "proto/tessera/v1/attach.pb.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// Curves keep at most this many points, evenly spaced over the whole run.
inline constexpr int kMaxCurvePoints = 512;

// Folds one report in. A report of a step that is not newer only adds its validation loss.
void ApplyStepReport(const v1::StepReport& report, v1::JobProgress& progress);

// The job goes on after so many steps: what has been reported of later ones is forgotten, as they
// will be taken, and reported, again.
void RewindProgress(int64_t step, v1::JobProgress& progress);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_JOB_PROGRESS_H_
