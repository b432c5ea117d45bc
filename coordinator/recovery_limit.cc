#include "coordinator/recovery_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/active_job.h"

namespace tessera {
namespace {

std::string LastLoss(const v1::TrainingJobStatus& status) {
  std::string message;
  for (const v1::JobCondition& condition : status.conditions()) {
    const bool is_loss =
        condition.state() == v1::JOB_STATE_RECOVERING && condition.reason() == kWorkerLost;
    if (is_loss) message = condition.message();
  }
  return message;
}

}  // namespace

absl::Duration RecoveryPause(int recoveries_in_a_row) {
  if (recoveries_in_a_row <= 1) return absl::ZeroDuration();
  return kFirstRecoveryPause * (1 << std::min(recoveries_in_a_row - 2, kMaxRecoveriesInARow));
}

int RecoveriesInARow(const v1::TrainingJobStatus& status, int64_t step) {
  if (step <= status.resume_step()) return status.recoveries_in_a_row();
  return status.state() == v1::JOB_STATE_RECOVERING ? std::min(status.recoveries_in_a_row(), 1) : 0;
}

std::string RecoveriesExhaustedText(const v1::TrainingJobStatus& status,
                                    std::optional<int64_t> step) {
  return absl::StrCat(
      kMaxRecoveriesInARow, " recoveries in a row ",
      step.has_value() ? absl::StrCat("went on after step ", *step, " and committed no further one")
                       : "started from the beginning and committed no step",
      "; the last loss: ", LastLoss(status),
      "; what is committed is kept: find the cause, then resume the job");
}

}  // namespace tessera
