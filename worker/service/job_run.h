// One job's rank on this worker, from assignment to end, on a thread of its own.
#ifndef TESSERA_WORKER_SERVICE_JOB_RUN_H_
#define TESSERA_WORKER_SERVICE_JOB_RUN_H_

#include <atomic>
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
#include "worker/trainer/trainer.h"

namespace tessera {

// Where a worker's jobs run. All outlive the runs.
struct WorkerContext {
  std::string worker;  // "workers/w0"
  std::string data_root;
  std::string export_root;
  Device* device = nullptr;
  Transport* transport = nullptr;
};

// The thread starts in the constructor and is joined by the destructor, which aborts first. All
// device memory is given back before `report` gets JobEnded. Thread-safe.
class JobRun : private TrainingObserver {
 public:
  // report gets GroupsFormed, StepReport (global_rank 0 only) and, last, JobEnded, on the run's
  // thread.
  JobRun(const WorkerContext& context, v1::RankAssignment assignment,
         std::function<void(v1::WorkerMessage)> report);
  ~JobRun() override;

  const v1::RankAssignment& assignment() const { return assignment_; }
  // Ends joins, collectives and the next micro-batch with `reason`. The first reason stays.
  void Abort(const absl::Status& reason);
  // The collective that is waited for now.
  std::optional<v1::PendingCollective> Pending() const;

 private:
  void Run();
  absl::Status Execute(std::string* sample);
  absl::Status JoinGroups();
  // Of spec.export.
  std::string ExportFolder() const;
  absl::Status CheckExportFolder() const;
  std::optional<v1::PendingCollective> PendingLocked() const;
  void Report(v1::WorkerMessage message) const { report_(std::move(message)); }

  absl::Status CheckStop() override;
  void OnStep(const StepResult& result) override;
  void OnStepBegin(int64_t step) override { step_ = step; }

  const WorkerContext context_;
  const v1::RankAssignment assignment_;
  const std::function<void(v1::WorkerMessage)> report_;
  std::atomic<int64_t> step_{0};
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  absl::Status abort_reason_;                                 // guarded by mutex_
  std::optional<v1::PendingCollective> pending_at_abort_;     // guarded by mutex_
  std::vector<std::unique_ptr<Communicator>> communicators_;  // grows under mutex_
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_JOB_RUN_H_
