// The last changes of jobs, by revision, for watchers.
#ifndef TESSERA_COORDINATOR_EVENT_LOG_H_
#define TESSERA_COORDINATOR_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

struct JobEvent {
  int64_t revision = 0;
  std::shared_ptr<const v1::TrainingJob> job;
};

// Holds the newest `capacity` events; thread-safe. A slow watcher cannot make it grow: what has
// fallen out is OUT_OF_RANGE for it.
class EventLog {
 public:
  // Events up to and including first_revision are unknown here (they were before the start).
  EventLog(size_t capacity, int64_t first_revision)
      : capacity_(capacity), dropped_(first_revision), newest_(first_revision) {}

  // REQUIRES: event.revision is above all earlier ones.
  void Append(JobEvent event);
  // The first event after `revision`, of the named job or (empty) of any; a null job when there is
  // none yet. OUT_OF_RANGE when events after `revision` have been dropped, or it is in the future.
  absl::StatusOr<JobEvent> Next(int64_t revision, const std::string& name) const;

  // Revision of the newest event.
  int64_t newest() const;

  // `wake` is called, on the appending thread and without locks, after every append. The id is for
  // Unsubscribe, after which wake is neither running nor called.
  int64_t Subscribe(std::function<void()> wake);
  void Unsubscribe(int64_t id);

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<JobEvent> events_;  // guarded by mutex_
  int64_t dropped_;              // newest revision no longer held; guarded by mutex_
  int64_t newest_;               // guarded by mutex_

  std::mutex subscribers_mutex_;
  std::map<int64_t, std::function<void()>> subscribers_;  // guarded by subscribers_mutex_
  int64_t next_id_ = 1;                                   // guarded by subscribers_mutex_
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_EVENT_LOG_H_
