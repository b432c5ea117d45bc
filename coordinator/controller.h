// The coordinator's brain: takes requests, worker messages and time, and moves jobs through their
// states. Knows nothing of gRPC.
#ifndef TESSERA_COORDINATOR_CONTROLLER_H_
#define TESSERA_COORDINATOR_CONTROLLER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/active_job.h"
#include "coordinator/clock.h"
#include "coordinator/event_log.h"
#include "coordinator/generation_table.h"
#include "coordinator/job_memory.h"
#include "coordinator/journal.h"
#include "coordinator/resume_decision.h"
#include "coordinator/worker_registry.h"
#include "proto/daemon/log.h"
#include "proto/tessera/v1/attach.pb.h"
#include "proto/tessera/v1/cluster.pb.h"
#include "proto/tessera/v1/jobs.pb.h"

namespace tessera {

struct ControllerOptions {
  LeaseOptions lease;
  // After a start, workers of running jobs have this long to attach again.
  absl::Duration restart_grace = absl::Seconds(15);
  absl::Duration collective_timeout = absl::Seconds(120);
  // A worker that looks at a job's files answers within this time.
  absl::Duration data_check_timeout = absl::Seconds(60);
  // Progress of a running job is published at most this often.
  absl::Duration progress_interval = absl::Milliseconds(100);
  // A transition that cannot be journaled ends the process: what was promised could not be kept.
  std::function<void(const absl::Status&)> on_fatal;
};

// Thread-safe. Every transition is journaled before it is acted on.
class Controller {
 public:
  // Loads the journal. Jobs that were RUNNING or SUSPENDING wait for their workers; jobs that were
  // ADMITTED go back to PENDING. store, clock and log outlive the controller.
  static absl::StatusOr<std::unique_ptr<Controller>> Create(ControllerOptions options,
                                                            KeyValueStore* store,
                                                            const Clock* clock, Logger* log);

  // Jobs. Errors as in jobs.proto. CreateJob answers through done, once, perhaps before it returns:
  // a worker may first have to look at the data files.
  void CreateJob(const v1::CreateTrainingJobRequest& request,
                 const std::function<void(absl::StatusOr<v1::TrainingJob>)>& done);
  // Creates a job as CreateJob does, with the spec that the request stands for.
  void VerifyJob(const v1::VerifyTrainingJobRequest& request,
                 const std::function<void(absl::StatusOr<v1::TrainingJob>)>& done);
  absl::StatusOr<v1::TrainingJob> GetJob(const std::string& name) const;
  absl::StatusOr<v1::ListTrainingJobsResponse> ListJobs(
      const v1::ListTrainingJobsRequest& request) const;
  absl::StatusOr<v1::TrainingJob> CancelJob(const std::string& name);
  absl::StatusOr<v1::TrainingJob> SuspendJob(const std::string& name);
  absl::StatusOr<v1::TrainingJob> ResumeJob(const std::string& name);
  EventLog& events() { return *events_; }

  // Generations. Errors as in jobs.proto; else an id, and sink gets what the worker sends and then
  // the end, unless CancelGeneration comes first. The sink may be called before this returns.
  absl::StatusOr<std::string> StartGeneration(const v1::GenerateRequest& request,
                                              const std::shared_ptr<GenerationSink>& sink);
  // Nothing for one that has ended.
  void CancelGeneration(const std::string& id);

  // Cluster. Errors as in cluster.proto.
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request) const;
  absl::StatusOr<v1::Placement> GetPlacement(const std::string& job) const;
  // Of an operation on the attached worker that has most; 1 where none is attached.
  int MostThreads() const;

  // Workers: a session id for the other two calls. Errors as in attach.proto.
  absl::StatusOr<int64_t> AttachWorker(const v1::RegisterWorker& request,
                                       const std::shared_ptr<WorkerSession>& session);
  void HandleWorkerMessage(int64_t session_id, const v1::WorkerMessage& message);
  void DetachWorker(int64_t session_id);

  // Leases, deadlines, publication of progress. Call about every 50 ms.
  void Tick();
  // Ends every worker's stream with UNAVAILABLE; running jobs go on and wait for a new coordinator.
  void Shutdown();

 private:
  struct JobRecord {
    v1::TrainingJob job;
    std::unique_ptr<ActiveJob> active;        // while the job has workers
    std::vector<ActiveJob::Rank> last_ranks;  // of its last run
    v1::JobShards shards;                     // as journaled
    std::optional<JobMemory> memory;          // predicted, while it waits for workers
    // What global_rank 0 has found, until the other ranks have ended too.
    std::optional<v1::VerificationReport> verification;
    bool progress_dirty = false;
    absl::Duration progress_published;
    // Of the mean speed: where and when it is measured from.
    std::optional<std::pair<int64_t, absl::Duration>> speed_origin;
    // Workers that hold its state are kept for it until then while others are not back yet.
    absl::Duration reserved_until;
    // When its status last told of a shortage.
    std::optional<absl::Duration> shortage_told_at;
    // Of the last loss by which this coordinator made it RECOVERING.
    std::optional<absl::Duration> lost_at;
  };
  struct DataCheck {
    std::string worker;
    absl::Duration deadline;
    std::function<void(const absl::Status&)> done;
  };

  struct NewJob {
    v1::CreateTrainingJobRequest request;
    v1::RequestRecord record;  // what the client sent; no answer yet
  };

  Controller(ControllerOptions options, const Clock* clock, Logger* log);
  absl::Status Load(KeyValueStore* store);

  // Attached and not stopping.
  struct Fleet {
    std::vector<Candidate> workers;  // with what each has once the job that it runs is gone
    int most_threads = 1;
  };
  // One pass over the jobs that wait for workers.
  struct Schedule {
    Fleet fleet;
    std::vector<Candidate> idle;  // that later jobs may take
    bool is_blocked = false;      // an earlier job waits for workers and must not be overtaken
  };

  void CreateNewJob(const NewJob& job,
                    const std::function<void(absl::StatusOr<v1::TrainingJob>)>& done);
  // What is wrong with a first request, without a look at files.
  absl::Status CheckNewJob(const v1::CreateTrainingJobRequest& request) const;
  // RESOURCE_EXHAUSTED: as many workers as the job has ranks are attached, and no choice among them
  // has enough of every tier.
  absl::Status CheckMemory(const v1::TrainingJobSpec& spec) const;

  // All below: mutex_ is held.
  absl::StatusOr<v1::TrainingJob> CommitLocked(const NewJob& job);
  // NOT_FOUND: the request is a first one.
  absl::StatusOr<v1::TrainingJob> EarlierAnswerLocked(const NewJob& job) const;
  // False: no worker is attached, and done will not be called.
  bool StartDataCheckLocked(const v1::TrainingJobSpec& spec,
                            std::function<void(const absl::Status&)> done);
  std::function<void()> FinishDataCheckLocked(int64_t check_id, absl::Status status);
  // Attached. The second one fills in what run says of the job.
  absl::StatusOr<WorkerEntry*> AnyWorkerLocked();
  absl::StatusOr<WorkerEntry*> WorkerWithWeightsLocked(const std::string& job,
                                                       v1::RunGeneration& run);
  // What to do without the lock.
  std::function<void()> HandleGeneratedLocked(const WorkerEntry& worker,
                                              const v1::Generated& message);
  // Those whose worker's stream has ended.
  std::vector<GenerationTable::Entry> RemoveLostGenerationsLocked();
  JobRecord& AddLocked(v1::TrainingJob job);
  JobRecord* FindUidLocked(const std::string& uid);
  // NOT_FOUND, INVALID_ARGUMENT.
  absl::StatusOr<JobRecord*> FindJobLocked(const std::string& name, const char* field);
  absl::StatusOr<const JobRecord*> FindJobLocked(const std::string& name, const char* field) const;
  void TransitionLocked(JobRecord& record, v1::JobState state, const std::string& reason,
                        const std::string& message);
  void SaveLocked(JobRecord& record, Durability durability);
  // With the next transition.
  void SaveShardsLocked(JobRecord& record, v1::JobShards shards);
  Fleet FleetLocked() const;

  // Placement.
  void ScheduleLocked();
  std::vector<JobRecord*> QueueLocked();
  void ScheduleAnywhereLocked(JobRecord& record, Schedule& schedule);
  void ScheduleWithStateLocked(JobRecord& record, Schedule& schedule);
  void PredictLocked(JobRecord& record, const Fleet& fleet);
  // Whether nothing that the job could wait for will help: its state says so, once.
  bool TellShortageLocked(JobRecord& record, const Fleet& fleet);
  // Of the workers that hold its state one has too little: its state says so, once.
  bool TellShortfallLocked(JobRecord& record);
  // As TellWaitingLocked, of a tier of which workers have too little.
  void TellShortLocked(JobRecord& record, plan::Tier tier, const std::string& message);
  // A condition that says why the job still waits, in place of one of the same reason.
  void TellWaitingLocked(JobRecord& record, const std::string& reason, const std::string& message);
  // resume_step: as in RankAssignment.
  void AssignLocked(JobRecord& record, const std::vector<std::string>& workers,
                    std::optional<int64_t> resume_step);
  v1::RankAssignment AssignmentLocked(const JobRecord& record, int global_rank,
                                      std::optional<int64_t> resume_step);

  // Suspension and preemption.
  void BeginSuspendLocked(JobRecord& record, const std::string& reason, const std::string& message);
  void SendSuspendLocked(const JobRecord& record, const ActiveJob::Rank& rank);
  void HandleSuspendFailedLocked(WorkerEntry& worker, const v1::SuspendFailed& message);
  // Of a job that failed because it lost workers: that it was being suspended.
  void NoteUnsavedLocked(const JobRecord& record, JobOutcome& outcome);
  // Suspends jobs of lower priority whose workers the job would get, if that is enough and not yet
  // under way: any workers, or those that it had. Where it is not enough because one of them could
  // not save its state, the job's status says so.
  void PreemptAnywhereLocked(JobRecord& record, const std::vector<Candidate>& idle);
  void PreemptHoldersLocked(JobRecord& record);
  // "; trainingJobs/b cannot make room: ..." of jobs on the workers that it had.
  std::string HoldersThatStayLocked(const JobRecord& record);
  void PreemptLocked(JobRecord& victim, const JobRecord& record);

  // State that outlives its workers' processes.
  std::vector<StateHolder> HoldersLocked(const JobRecord& record) const;
  // Whether the job, which could go on after this step (or from the beginning), does not now: it
  // pauses before another recovery, or has had too many in vain and is suspended. Its state says
  // so.
  bool HoldBackLocked(JobRecord& record, std::optional<int64_t> step);
  // What the job becomes that can go on, and what its status says of it.
  void PrepareToGoOnLocked(JobRecord& record, JobOutcome& outcome);
  void NoteSavedLocked(WorkerEntry& worker, const v1::JobEnded& message);
  void SendDiscardLocked(WorkerEntry& worker, const std::string& uid);
  // Of a job that has ended, on all workers but those that still run it; and what is known of it.
  void DiscardStateLocked(JobRecord& record);
  // Of all jobs that have ended.
  void DiscardEndedLocked(WorkerEntry& worker);

  // What workers say.
  void ReconcileLocked(WorkerEntry& worker, const v1::RegisterWorker& request);
  void HandleGroupsFormedLocked(WorkerEntry& worker, const v1::GroupsFormed& message);
  void HandleMemoryLocked(WorkerEntry& worker, const v1::MemoryReport& report);
  void HandleStepLocked(WorkerEntry& worker, const v1::StepReport& report);
  void HandleJobEndedLocked(WorkerEntry& worker, const v1::JobEnded& message);
  void SettleLocked(JobRecord& record);
  void AbortRanksLocked(JobRecord& record);
  void SendAbortLocked(WorkerEntry& worker, const std::string& uid, int64_t epoch,
                       const std::string& reason);

  const ControllerOptions options_;
  const Clock* const clock_;
  Logger* const log_;
  std::unique_ptr<EventLog> events_;  // thread-safe by itself
  mutable std::mutex mutex_;
  std::unique_ptr<Journal> journal_;          // guarded by mutex_
  std::map<std::string, JobRecord> jobs_;     // by name, never erased; guarded by mutex_
  std::map<std::string, JobRecord*> by_uid_;  // into jobs_; guarded by mutex_
  WorkerRegistry registry_;                   // guarded by mutex_
  std::map<int64_t, DataCheck> checks_;       // by check id; guarded by mutex_
  GenerationTable generations_;               // guarded by mutex_
  int64_t next_session_id_ = 1;               // guarded by mutex_
  int64_t next_check_id_ = 1;                 // guarded by mutex_
  std::string instance_id_;
  absl::Duration restart_deadline_;  // missing workers of running jobs are lost after it
  bool restart_settled_ = false;     // guarded by mutex_
  bool shut_down_ = false;           // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_CONTROLLER_H_
