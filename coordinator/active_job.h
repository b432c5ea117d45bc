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
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// How a job ended.
struct JobOutcome {
  v1::JobState state = v1::JOB_STATE_FAILED;
  std::string reason;   // SUCCEEDED, CANCELLED, WORKER_LOST, RANK_FAILED
  std::string message;  // names worker, rank, group, collective where they apply
  absl::Status error;   // OK when SUCCEEDED
};

// Not thread-safe: guarded by its owner. Time is passed in (monotonic).
class ActiveJob {
 public:
  struct Rank {
    std::string worker;
    std::string instance_id;
    v1::MeshCoordinates coordinates;
    bool formed = false;
    std::optional<absl::Status> ended;  // what the rank reported
    bool lost = false;
    std::string lost_message;
    std::optional<v1::PendingCollective> pending;  // at its end, or last heard of
    std::vector<v1::ShardPlacement> shards;
  };

  // formed: the ranks are known to have formed their groups (a job found RUNNING after a restart).
  ActiveJob(std::string uid, int64_t epoch,
            const google::protobuf::RepeatedPtrField<v1::RankPlacement>& placement, bool formed);

  const std::string& uid() const { return uid_; }
  int64_t epoch() const { return epoch_; }
  const std::vector<Rank>& ranks() const { return ranks_; }
  // Nothing for a worker that has no rank here.
  Rank* FindWorker(const std::string& worker);

  bool AllFormed() const;
  // Events; an event about a rank that has ended or is lost changes nothing.
  void Ended(Rank& rank, absl::Status status, absl::Duration now);
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

  const std::string uid_;
  const int64_t epoch_;
  std::vector<Rank> ranks_;  // by global rank
  std::optional<absl::Duration> stopping_since_;
  bool cancelled_ = false;  // the cancel came before any failure
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_ACTIVE_JOB_H_
