// One job's rank on this worker, from assignment to end, on a thread of its own.
#ifndef TESSERA_WORKER_SERVICE_JOB_RUN_H_
#define TESSERA_WORKER_SERVICE_JOB_RUN_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "proto/tessera/v1/assignment.pb.h"
#include "proto/tessera/v1/attach.pb.h"
#include "worker/comm/transport.h"
#include "worker/data/token_source.h"
#include "worker/service/kept_weights.h"
#include "worker/service/setup_gate.h"
#include "worker/service/tier_holder.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/verification.h"

namespace tessera {

// Where a worker's jobs run. All outlive the runs.
struct WorkerContext {
  std::string worker;  // "workers/w0"
  std::string data_root;
  std::string export_root;
  Device* device = nullptr;
  Transport* transport = nullptr;
  SetupGate* gate = nullptr;            // closed while a job takes its memory
  KeptWeights* kept_weights = nullptr;  // where the final weights go
  TierHolder* tiers = nullptr;          // null: the worker has none
};

// Gets the weights after `step` whole steps; nothing else happens to the trainer meanwhile.
using WeightsCallback = std::function<absl::Status(int64_t step, const Trainer& trainer)>;

// The thread starts in the constructor and is joined by the destructor, which aborts first. All
// device memory is given back before `report` gets JobEnded. Thread-safe.
class JobRun : private TrainingObserver {
 public:
  // report gets GroupsFormed, MemoryReport (after the first step), StepReport (global_rank 0 only),
  // SuspendFailed and, last, JobEnded, on the run's thread.
  JobRun(const WorkerContext& context, v1::RankAssignment assignment,
         std::function<void(v1::WorkerMessage)> report);
  ~JobRun() override;

  const v1::RankAssignment& assignment() const { return assignment_; }
  // Ends joins, collectives and the next micro-batch with `reason`. The first reason stays.
  void Abort(const absl::Status& reason);
  // The run ends after the step in progress, its state saved to the nvme tier, once all ranks have
  // been told.
  void Suspend() { wants_suspend_ = true; }
  // The collective that is waited for now.
  std::optional<v1::PendingCollective> Pending() const;
  // Calls callback once on the run's thread, before its next step, and returns its result when it
  // has returned. NOT_FOUND, and no call: training has ended. check_stop is asked while it waits
  // for the step's end; an error ends the wait with it.
  absl::Status ReadWeights(const std::function<absl::Status()>& check_stop,
                           const WeightsCallback& callback);
  // Trainer::momentary_bytes of the one that runs; 0: none does. Any thread.
  int64_t momentary_bytes() const { return momentary_bytes_; }

 private:
  // A caller of ReadWeights, which waits.
  struct WeightsRead {
    const WeightsCallback* callback = nullptr;
    std::optional<absl::Status> result;
    bool is_running = false;
  };

  void Run();
  absl::Status Execute(v1::JobEnded& ended);
  absl::StatusOr<std::unique_ptr<Trainer>> CreateTrainer(const MeshGroups& groups,
                                                         const JobData& data,
                                                         const WeightReader* weights);
  void ReportFormed(const Trainer& trainer) const;
  // After training: what the spec asks for, and what is kept of the weights, by rank 0; the others
  // help.
  absl::Status Finish(Trainer& trainer, v1::JobEnded& ended);
  // After the layout's steps, of a job with spec.verification: rank 0 repeats them on its own and
  // compares.
  absl::Status Verify(std::unique_ptr<Trainer> trainer, const JobData& data, v1::JobEnded& ended);
  absl::StatusOr<TrainingRecord> TrainOnOneRank(const JobData& data);
  absl::StatusOr<Communicator*> Join(const GroupSpec& spec);
  absl::Status JoinGroups();
  // Tells the members of all groups why this rank ends: one that shares a group with this rank, but
  // none with the rank that was lost first, can name that one nevertheless. Returns error.
  absl::Status AbortGroups(const absl::Status& error);
  // Calls those that wait in ReadWeights; null: training has ended.
  void ServeWeights(int64_t step, const Trainer* trainer);
  // Of spec.export.
  std::string ExportFolder() const;
  absl::Status CheckExportFolder() const;
  std::optional<v1::PendingCollective> PendingLocked() const;
  void Report(v1::WorkerMessage message) const { report_(std::move(message)); }
  // Peaks of the device's arena since the job began to take its memory.
  void ReportMemory(const Trainer& trainer) const;

  absl::Status CheckStop() override;
  void OnStep(const StepResult& result) override;
  void OnStepBegin(int64_t step) override;
  bool WantsWeights() override;
  bool WantsSuspend() override { return wants_suspend_.exchange(false); }
  void OnSuspendFailed(const absl::Status& status) override;
  void OnWeights(int64_t step, const Trainer& trainer) override;
  absl::Status OnTimeline(const plan::Timeline& timeline) override;

  const WorkerContext context_;
  const v1::RankAssignment assignment_;
  const std::function<void(v1::WorkerMessage)> report_;
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> momentary_bytes_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> wants_suspend_{false};
  mutable std::mutex mutex_;
  absl::Status abort_reason_;                                 // guarded by mutex_
  std::optional<v1::PendingCollective> pending_at_abort_;     // guarded by mutex_
  std::vector<std::unique_ptr<Communicator>> communicators_;  // grows under mutex_
  std::vector<StepResult> verified_steps_;                    // of the run's thread
  bool is_reference_ = false;                                 // of the run's thread
  const Trainer* unreported_ = nullptr;  // of which no memory was reported; of the run's thread
  std::condition_variable weights_changed_;
  std::deque<WeightsRead*> weights_reads_;  // guarded by mutex_
  bool training_ended_ = false;             // guarded by mutex_
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_JOB_RUN_H_
