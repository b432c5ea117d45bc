// The ranks of one job while it has workers, and what becomes of the job: a state machine without
// IO.
#ifndef TESSERA_COORDINATOR_ACTIVE_JOB_H_
#define TESSERA_COORDINATOR_ACTIVE_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/tessera/v1/attach.pb.h"
#include "proto/tessera/v1/journal.pb.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// How the run of a job on its workers ended. SUSPENDED: it can go on from what the workers' nvme
// tiers hold. RECOVERING: likewise, and nobody wanted it to stop.
struct JobOutcome {
  v1::JobState state = v1::JOB_STATE_FAILED;
  std::string reason;   // SUCCEEDED, CANCELLED, SUSPENDED, TIER_FAILED, WORKER_LOST, RANK_FAILED
  std::string message;  // names worker, rank, group, collective where they apply
  absl::Status error;   // of FAILED and CANCELLED; else OK
  // SUSPENDED: all ranks have committed the state after so many steps. Absent: not known.
  std::optional<int64_t> suspended_step;
};

JobOutcome CancelledOutcome();

// Reason of a rank's failure: its nvme tier failed (a full or broken disk), what it had committed
// is still there.
inline constexpr char kTierFailed[] = "TIER_FAILED";
inline constexpr char kWorkerLost[] = "WORKER_LOST";
inline constexpr char kSuspended[] = "SUSPENDED";
// Reasons of conditions that decide what becomes of a job.
inline constexpr char kPreempted[] = "PREEMPTED";
inline constexpr char kSuspendFailed[] = "SUSPEND_FAILED";

// Not thread-safe: guarded by its owner. Time is passed in (monotonic).
class ActiveJob {
 public:
  struct Rank {
    std::string worker;
    std::string instance_id;
    v1::MeshCoordinates coordinates;
    bool formed = false;
    std::optional<absl::Status> ended;  // what the rank reported
    // With an OK end: it has not finished, but has been suspended after so many steps.
    std::optional<int64_t> suspended_step;
    bool lost = false;
    bool was_asked_to_stop = false;  // its worker, which then was lost on purpose
    std::string lost_message;
    std::optional<v1::PendingCollective> pending;  // at its end, or last heard of
    std::vector<v1::ShardPlacement> shards;
  };

  // formed: the ranks are known to have formed their groups (a job found RUNNING after a restart).
  // is_recoverable: the workers' nvme tiers hold, or will hold, state from which the job can go on.
  ActiveJob(std::string uid, int64_t epoch,
            const google::protobuf::RepeatedPtrField<v1::RankPlacement>& placement, bool formed,
            bool is_recoverable = false);

  const std::string& uid() const { return uid_; }
  int64_t epoch() const { return epoch_; }
  const std::vector<Rank>& ranks() const { return ranks_; }
  // Nothing for a worker that has no rank here.
  Rank* FindWorker(const std::string& worker);

  bool AllFormed() const;
  // What the ranks have said that they hold.
  v1::JobShards Shards() const;
  // As another coordinator heard it: fewer ranks say nothing of the others.
  void RestoreShards(const v1::JobShards& shards);
  bool is_recoverable() const { return is_recoverable_; }
  void set_is_recoverable(bool is_recoverable) { is_recoverable_ = is_recoverable; }
  // Events; an event about a rank that has ended or is lost changes nothing. suspended_step: as in
  // Rank; nothing with a status that is not OK.
  void Ended(Rank& rank, absl::Status status, absl::Duration now,
             std::optional<int64_t> suspended_step = std::nullopt);
  void Lost(Rank& rank, std::string message, absl::Duration now);
  void Cancel(absl::Duration now);

  // True from the first failure or cancel on: ranks that have not ended must be told to abort, with
  // abort_reason().
  bool stopping() const { return stopping_since_.has_value(); }
  std::string abort_reason() const;
  // The outcome, once every rank has ended or is lost, or the survivors have had their time to
  // report (then it says who did not).
  std::optional<JobOutcome> Resolve(absl::Duration now) const;

  // Survivors of a failure report within this time or are left out of the message.
  static constexpr absl::Duration kFailureSettle = absl::Seconds(1);
  static constexpr absl::Duration kCancelSettle = absl::Seconds(30);

 private:
  JobOutcome Failure() const;
  // Of ranks that have all ended well.
  JobOutcome WellEnded() const;
  // The step after which a rank has been suspended, where the others are gone without a failure of
  // their own: a rank ends so only when all have committed.
  std::optional<int64_t> CommittedByAll() const;

  const std::string uid_;
  const int64_t epoch_;
  std::vector<Rank> ranks_;  // by global rank
  std::optional<absl::Duration> stopping_since_;
  bool cancelled_ = false;  // the cancel came before any failure
  bool is_recoverable_;
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_ACTIVE_JOB_H_
