// Where a job goes on that was suspended, or that lost its workers: a pure decision.
#ifndef TESSERA_COORDINATOR_RESUME_DECISION_H_
#define TESSERA_COORDINATOR_RESUME_DECISION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// A worker that had a rank of the job when it last ran: only that one can have the rank's state.
struct StateHolder {
  std::string worker;  // "workers/w0"
  int global_rank = 0;
  std::string unknown;         // why what it holds is not known: "is not attached"; empty: it is
  std::string busy_with;       // "trainingJobs/{job}"; empty: it is idle
  std::string damage;          // of the state that its nvme tier holds; empty: it is whole
  std::vector<int64_t> steps;  // of which its nvme tier holds the rank's state, ascending
};

struct ResumeDecision {
  enum class Kind : uint8_t {
    kResume,          // at once, after `step`
    kStartOver,       // no step was ever committed on all ranks
    kWaitForWorkers,  // that hold the state, but are busy
    kWaitForState,    // a worker is not there, or does not hold it
  };
  Kind kind = Kind::kWaitForState;
  int64_t step = 0;     // of kResume and kWaitForWorkers
  std::string message;  // of the waits: worker, rank and what is missing
};

// The largest step that all of them hold; nothing: there is none.
std::optional<int64_t> LargestCommonStep(absl::Span<const StateHolder> holders);

// A step that all ranks have committed, as far as the job's status tells; nothing: none that
// matters. A rank ends a step only when all have committed the one before.
std::optional<int64_t> KnownCommittedStep(const v1::TrainingJob& job);

// saved_step: after which all ranks are known to have committed; absent: none is known. A rank
// drops an older step only when all ranks have committed a newer one. So where nobody holds more
// than the first step, and no step is common, none has been committed. Not so where state is
// damaged: then somebody has to decide.
ResumeDecision DecideResume(absl::Span<const StateHolder> holders,
                            std::optional<int64_t> saved_step);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_RESUME_DECISION_H_
