// Pipelines without a model, for tests: ranks as threads, computations that take a given time, and
// messages that say what they are.
#ifndef TESSERA_WORKER_PIPELINE_PARALLEL_PIPELINE_TESTING_H_
#define TESSERA_WORKER_PIPELINE_PARALLEL_PIPELINE_TESTING_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulation.h"
#include "worker/comm/communicator.h"
#include "worker/pipeline_parallel/stage_compute.h"

namespace tessera {

// Every tensor holds what it is: activation or gradient, of which global chunk, micro-batch and
// run. Each computation checks its inputs, also those that it received earlier, and fails with
// INTERNAL where one is another. Memory that is released is overwritten at once, so a message that
// had not left is seen at its receiver. Used by one thread.
class SyntheticStage : public StageCompute {
 public:
  struct Options {
    plan::ScheduleOptions schedule;
    int pp_rank = 0;
    bool is_training = true;
    std::vector<int> slots;  // by chunk
    // What computations take, by sleeping: ranks are more than cores.
    plan::ChunkCosts costs = {0, 0, 0, 0};
    std::optional<plan::Action> fails_at = std::nullopt;  // with `failure`
    absl::Status failure = absl::InternalError("planned");
    int64_t run = 0;  // any number, the same on all ranks
  };
  SyntheticStage(const Options& options, Device& device, Stream& stream);

  int num_slots(int chunk) const override { return options_.slots[chunk]; }
  void Assign(int chunk, int micro_batch) override;
  void Release(int chunk, int micro_batch) override;
  absl::Status Compute(const plan::Action& action, Stream& stream) override;
  Tensor Input(int chunk, int micro_batch) const override;
  Tensor Output(int chunk, int micro_batch) const override;
  Tensor Gradient(int chunk, int micro_batch) const override;
  Tensor SendBuffer(int index) const override { return send_buffers_[index]; }

  int computations() const { return computations_; }
  // Whether all that there is was computed once, no chunk had more than its slots and all is
  // released; INTERNAL says what is not so.
  absl::Status CheckEnd() const;

 private:
  using Contents = std::array<int64_t, 4>;
  struct Slot {
    int micro_batch = -1;
    Tensor input, output, gradient;
  };

  int GlobalChunk(int chunk) const { return chunk * options_.schedule.stages + options_.pp_rank; }
  int NumGlobalChunks() const { return options_.schedule.chunks * options_.schedule.stages; }
  Contents ContentsOf(bool is_activation, int global_chunk, int micro_batch) const;
  const Slot& At(int chunk, int micro_batch) const;
  void Write(const Tensor& tensor, const Contents& contents);
  absl::Status Expect(const Tensor& tensor, const Contents& contents, const plan::Action& action);
  void Fault(std::string text);

  const Options options_;
  Device& device_;
  Stream& stream_;
  DeviceBuffer memory_;
  std::vector<std::vector<Slot>> slots_;  // by chunk
  std::vector<Tensor> send_buffers_;
  std::map<plan::ActionKind, std::set<std::pair<int, int>>> done_;
  int computations_ = 0;
  std::string fault_;
};

// What a pipeline's rank has.
struct PipelineRank {
  int pp_rank = 0;
  Communicator& group;
  Device& device;
  Stream& stream;
};

// Calls body for each of p ranks, threads with a device each and one pp group; returns its errors
// by pp_rank. A rank that fails ends the group. A member that keeps the others waiting for
// `timeout`, as in a hang, is an error of those.
std::vector<absl::Status> RunPipelineRanks(int p, absl::Duration timeout,
                                           const std::function<absl::Status(PipelineRank&)>& body);

}  // namespace tessera

#endif  // TESSERA_WORKER_PIPELINE_PARALLEL_PIPELINE_TESTING_H_
