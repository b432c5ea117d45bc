// The jobs of one worker, one after another, and what must be told about them until it is known to
// have arrived. Knows nothing of gRPC.
#ifndef TESSERA_WORKER_SERVICE_JOB_RUNNER_H_
#define TESSERA_WORKER_SERVICE_JOB_RUNNER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/daemon/log.h"
#include "proto/tessera/v1/attach.pb.h"
#include "worker/service/job_run.h"

namespace tessera {

// Thread-safe. A job that fails leaves the runner ready for the next one.
class JobRunner {
 public:
  // send passes a message to the coordinator if the stream is up, and must not block or call back.
  JobRunner(const WorkerContext& context, Logger* log,
            std::function<void(const v1::WorkerMessage&)> send);
  ~JobRunner();

  // What the coordinator says. An assignment while another job runs is answered with job_ended.
  void HandleRun(const v1::RankAssignment& assignment);
  void HandleAbort(const v1::AbortJob& abort);
  void HandleSuspend(const v1::SuspendJob& suspend);
  // Nothing for a job that runs here.
  void HandleDiscardState(const v1::DiscardState& discard);
  void HandleJobEndedAck(const v1::JobEndedAck& ack);

  // What to say after (re)attaching: what is running, for register; then all that may have been
  // lost: groups_formed, memory, the newest step reports, job_ended.
  std::optional<v1::RunningJob> Running() const;
  std::vector<v1::WorkerMessage> Backlog() const;

  std::optional<v1::PendingCollective> Pending() const;
  // JobRun::ReadWeights of the job that runs; NOT_FOUND if that is not this one.
  absl::Status ReadWeights(const std::string& job_uid,
                           const std::function<absl::Status()>& check_stop,
                           const WeightsCallback& callback) const;
  // JobRun::momentary_bytes of the job that runs; 0: none does.
  int64_t momentary_bytes() const;
  // Ends the current job with `reason` and waits, at most timeout, until its end is acknowledged.
  void Stop(const absl::Status& reason, absl::Duration timeout);
  // True when an aborted job has not ended for this long: its thread is stuck, and only a new
  // process can help.
  bool IsStuck(absl::Duration limit) const;

 private:
  void OnReport(const v1::WorkerMessage& message);

  const WorkerContext context_;
  Logger* const log_;
  const std::function<void(const v1::WorkerMessage&)> send_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<JobRun> run_;              // guarded by mutex_; null when idle
  std::optional<v1::WorkerMessage> formed_;  // guarded by mutex_
  std::optional<v1::WorkerMessage> memory_;  // guarded by mutex_
  std::deque<v1::WorkerMessage> steps_;      // newest last; guarded by mutex_
  std::optional<v1::WorkerMessage> ended_;   // set: the thread is done; guarded by mutex_
  std::optional<absl::Time> aborted_at_;     // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_JOB_RUNNER_H_
