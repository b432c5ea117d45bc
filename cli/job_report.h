// What was measured of a job's layout beside what it should be, as people read it.
#ifndef TESSERA_CLI_JOB_REPORT_H_
#define TESSERA_CLI_JOB_REPORT_H_

#include <string>

#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// Of global_rank 0 in the last step, one line a group and collective: "equal", or what differs
// from the prediction. Empty where nothing is known.
std::string TrafficTable(const v1::JobProgress& progress);

// Where its time went: computation, communication, waiting for tiers, in seconds and per cent.
// Empty where nothing is known.
std::string StepTimeTable(const v1::JobProgress& progress);

// What it moved between its device and its tiers. Empty where there are none.
std::string TierTrafficTable(const v1::JobProgress& progress);

// Layout, steps, largest deviations and the verdict. REQUIRES: the job has a report.
std::string VerificationText(const v1::TrainingJob& job);

}  // namespace tessera

#endif  // TESSERA_CLI_JOB_REPORT_H_
