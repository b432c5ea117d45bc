// How often, and how soon, a job whose workers are lost is recovered: pure decisions.
#ifndef TESSERA_COORDINATOR_RECOVERY_LIMIT_H_
#define TESSERA_COORDINATOR_RECOVERY_LIMIT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// After so many recoveries in a row without one newly committed step the cause is taken to be the
// job's or its workers' own, and a person has to look.
inline constexpr int kMaxRecoveriesInARow = 5;
// Before the second recovery in a row; doubles with each. The first one comes at once: what was
// lost is most often back as soon as it has started again.
inline constexpr absl::Duration kFirstRecoveryPause = absl::Seconds(1);

// Reasons of conditions.
inline constexpr char kRecoveriesExhausted[] = "RECOVERIES_EXHAUSTED";
inline constexpr char kWaitingToRecover[] = "WAITING_TO_RECOVER";

// Since the loss, before this recovery: 1 is the first in a row.
absl::Duration RecoveryPause(int recoveries_in_a_row);

// What status.recoveries_in_a_row becomes of a job that can go on after this step: anew where the
// run before has committed a further one.
int RecoveriesInARow(const v1::TrainingJobStatus& status, int64_t step);

// For people: how often, from where, and what happened the last time. step: from which the job
// would go on; absent: from the beginning.
std::string RecoveriesExhaustedText(const v1::TrainingJobStatus& status,
                                    std::optional<int64_t> step);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_RECOVERY_LIMIT_H_
