// Generates text for the coordinator, beside whatever the worker is doing. Knows nothing of gRPC.
#ifndef TESSERA_WORKER_SERVICE_GENERATION_RUNNER_H_
#define TESSERA_WORKER_SERVICE_GENERATION_RUNNER_H_

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proto/tessera/v1/attach.pb.h"
#include "worker/service/job_runner.h"

namespace tessera {

// Each generation has a thread and a copy of its weights of its own. Thread-safe.
class GenerationRunner {
 public:
  // At once; more are refused.
  static constexpr int kMaxGenerations = 4;
  // Of the device's arena, left for what a running job takes for a time, besides what its steps do
  // (Trainer::momentary_bytes): conversions by 4 MiB, and the pieces in which TCP sends.
  static constexpr int64_t kReservedBytes = int64_t{16} << 20;

  // Takes running jobs' weights from `jobs`, which outlives the runner, as context's members do.
  // send as in JobRunner; it gets `generated` messages.
  GenerationRunner(const WorkerContext& context, JobRunner* jobs,
                   std::function<void(const v1::WorkerMessage&)> send);
  // Ends all generations.
  ~GenerationRunner();

  // What the coordinator says. Answered with an error: RESOURCE_EXHAUSTED beyond kMaxGenerations.
  void HandleRun(const v1::RunGeneration& run);
  void HandleCancel(const v1::CancelGeneration& cancel);
  // The stream has ended, and with it everybody who waits. Does not wait for threads.
  void CancelAll();

 private:
  class Generation;
  // Joins the threads of those that have ended.
  void RemoveEndedLocked();

  const WorkerContext context_;
  JobRunner* const jobs_;
  const std::function<void(const v1::WorkerMessage&)> send_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Generation>> generations_;  // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_GENERATION_RUNNER_H_
