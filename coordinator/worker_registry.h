// Membership: which workers are attached, what each does, and when it was last heard of.
#ifndef TESSERA_COORDINATOR_WORKER_REGISTRY_H_
#define TESSERA_COORDINATOR_WORKER_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/placement.h"
#include "proto/tessera/v1/attach.pb.h"
#include "proto/tessera/v1/cluster.pb.h"

namespace tessera {

// The coordinator's end of a worker's stream. Thread-safe; never blocks.
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;
  // In order; dropped once the stream has ended.
  virtual void Send(const v1::CoordinatorMessage& message) = 0;
  // Ends the stream with the status, after what was sent.
  virtual void Close(const absl::Status& status) = 0;
};

struct WorkerEntry {
  v1::Worker info;      // state, training_job, message and heartbeat time as of now
  std::string address;  // of the data path
  int64_t session_id = 0;
  std::shared_ptr<WorkerSession> session;     // null once detached
  absl::Duration last_heard;                  // monotonic
  std::optional<absl::Duration> detached_at;  // monotonic; set while detached and not yet lost
  std::string job_uid;                        // what it runs; empty when idle
  int64_t epoch = 0;
  std::optional<v1::PendingCollective> pending;  // of the last heartbeat
  std::map<std::string, v1::SavedState> saved;   // in its nvme tier, by job uid

  bool attached() const { return session != nullptr; }
  bool idle() const {
    return attached() && job_uid.empty() && info.state() != v1::WORKER_STATE_STOPPING;
  }
  // What a job can have of it, once it is idle.
  Candidate candidate() const;
};

struct LeaseOptions {
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  // An attached worker that is silent for this long is lost.
  absl::Duration lease = absl::Seconds(10);
  // A worker whose stream has ended is lost after this long, unless the same process is back.
  absl::Duration reattach_grace = absl::Milliseconds(400);
  // Lost workers are listed this long.
  absl::Duration keep_lost = absl::Minutes(10);
};

// Not thread-safe: guarded by its owner. Time is passed in.
class WorkerRegistry {
 public:
  explicit WorkerRegistry(LeaseOptions options) : options_(options) {}

  // A new or returning worker; the entry lives until the worker has been lost for keep_lost.
  // ALREADY_EXISTS while another process of that name is attached; INVALID_ARGUMENT for a bad name;
  // FAILED_PRECONDITION for another protocol version.
  absl::StatusOr<WorkerEntry*> Register(const v1::RegisterWorker& request,
                                        std::shared_ptr<WorkerSession> session, int64_t session_id,
                                        absl::Duration monotonic);
  // Nothing for an unknown or outdated session.
  WorkerEntry* FindSession(int64_t session_id);
  WorkerEntry* Find(const std::string& name);
  void Detach(WorkerEntry& worker, absl::Duration monotonic);
  // Workers that have just become lost: marks them and says why in info.message. Silent ones are
  // detached and their sessions closed.
  std::vector<WorkerEntry*> ExpireLeases(absl::Duration monotonic);

  std::vector<Candidate> IdleWorkers() const;
  const std::map<std::string, WorkerEntry>& workers() const { return workers_; }
  const LeaseOptions& options() const { return options_; }

 private:
  const LeaseOptions options_;
  std::map<std::string, WorkerEntry> workers_;  // by name
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_WORKER_REGISTRY_H_
