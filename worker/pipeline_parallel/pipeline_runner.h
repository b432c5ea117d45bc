// Executes one rank's list of actions of a pipeline schedule, whichever schedule it is.
#ifndef TESSERA_WORKER_PIPELINE_PARALLEL_PIPELINE_RUNNER_H_
#define TESSERA_WORKER_PIPELINE_PARALLEL_PIPELINE_RUNNER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "plan/pipeline_schedule.h"
#include "worker/comm/communicator.h"
#include "worker/pipeline_parallel/stage_compute.h"

namespace tessera {

// Micro-batches of a chunk that a list touches at once: from the first action of each to its last.
int PeakMicroBatches(const plan::StageActions& actions, int chunk);

// One action as it happened; times of the steady clock, which processes of a host share.
struct MeasuredAction {
  plan::Action action;
  std::chrono::steady_clock::time_point begin, end;
};

// Used by one thread; the group outlives it. Receives wait; sends are started and waited for when
// their memory is needed again, at the latest at the end. Messages of a pair of ranks carry no tag:
// the lists of both name them in the same order.
//
// A micro-batch gives its memory back with its last action and never waits for a message to be
// received, which could close a circle of ranks that wait for each other. A message that may not
// have arrived by then leaves from a send buffer; the schedules need no more of those than there
// are.
class PipelineRunner {
 public:
  // pp_group: a chain; peers of actions are its group ranks.
  PipelineRunner(plan::StageActions actions, Communicator& pp_group);

  const plan::StageActions& actions() const { return actions_; }
  // All actions once. before_compute is asked before each computing action and ends the run with
  // its error; measured, if not null, gets all actions. Errors of compute and of the communicator
  // pass through; micro-batches keep their memory then, and the group is aborted, so that no rank
  // waits for what does not come.
  absl::Status Run(StageCompute& compute, const std::function<absl::Status()>& before_compute,
                   std::vector<MeasuredAction>* measured, Stream& stream);

 private:
  using MicroBatch = std::pair<int, int>;  // chunk, micro_batch
  struct Sending {
    MicroBatch of;
    int buffer = -1;  // -1: the micro-batch's own memory
    std::unique_ptr<CollectiveHandle> handle;
  };

  absl::Status RunActions(StageCompute& compute,
                          const std::function<absl::Status()>& before_compute,
                          std::vector<MeasuredAction>* measured, Stream& stream);
  absl::Status Do(size_t index, StageCompute& compute, Stream& stream);
  absl::Status Send(size_t index, StageCompute& compute, Stream& stream);
  // Memory for the action's micro-batch, if it has none yet.
  absl::Status Admit(const MicroBatch& of, StageCompute& compute);
  // After each action: gives memory back after the last.
  absl::Status ReleaseIfDone(const plan::Action& action, StageCompute& compute);
  absl::Status FinishOldestSend(int peer);

  const plan::StageActions actions_;
  Communicator& pp_group_;
  std::map<MicroBatch, int> num_actions_;  // in the list
  std::vector<bool> is_buffered_;          // by action: sends from a send buffer
  // Of a run.
  struct Progress {
    int actions_left = 0;
    int sending_to = -1;  // peer that receives from its own memory; -1: none
  };
  std::map<MicroBatch, Progress> in_memory_;
  std::map<int, int> used_slots_;               // by chunk
  std::map<int, std::deque<Sending>> sending_;  // by peer, which receives in this order
  std::array<int, StageCompute::kSendBuffers> buffer_peer_ = {};  // -1: free
  int next_buffer_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_PIPELINE_PARALLEL_PIPELINE_RUNNER_H_
