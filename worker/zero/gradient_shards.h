// One rank's gradients, each unit one flat buffer that micro-batches add to, and their reduction
// over the zero group.
#ifndef TESSERA_WORKER_ZERO_GRADIENT_SHARDS_H_
#define TESSERA_WORKER_ZERO_GRADIENT_SHARDS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/model/units.h"
#include "worker/zero/collective_queue.h"
#include "worker/zero/unit_layout.h"
#include "worker/zero/zero_options.h"

namespace tessera {

// Used by one thread. Owns the buffers; queue, group and device outlive it.
//
// A reduction is started when a unit is ready and completes while the next unit's backward runs; at
// most one is pending. All stages reduce in the same way, and a sum over micro-batches is taken of
// reduced shards in their order, so that all give the same bits.
class GradientShards {
 public:
  // Called before a unit's gradients are reduced, while its whole gradients are there.
  using BeforeReduction = std::function<absl::Status(int unit)>;

  GradientShards(const ZeroOptions& options, Communicator* group, CollectiveQueue& queue,
                 Device& device)
      : options_(options), group_(group), queue_(queue), device_(device) {}

  // As ParameterShards::AddUnit.
  absl::Status AddUnit(const UnitSpec& spec, const UnitLayout& layout);
  void SetBeforeReduction(BeforeReduction hook) { before_reduction_ = std::move(hook); }

  // As ParameterStore.
  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit, Stream& stream);
  absl::Status Ready(int unit, Stream& stream);

  // Starts a step: nothing has been accumulated.
  void Clear();
  // After a step's last micro-batch: reduces what has been deferred, and waits for all.
  absl::Status FinishReduction(Stream& stream);

  // The parameters' gradients on this rank alone. REQUIRES: inside the hook, or reduction is
  // deferred and has not been finished, or zero_stage is 0 or 1 and the unit's AllGather is done.
  absl::Span<const Tensor> whole(int unit) const { return units_[unit].views; }
  const Tensor& flat(int unit) const { return units_[unit].whole; }
  // The rank's shard of the group's sum. REQUIRES: FinishReduction.
  const Tensor& reduced(int unit) const { return units_[unit].reduced; }
  // flat = the group's sum, whole. REQUIRES: zero_stage 0; FinishReduction.
  absl::Status AllGather(int unit, Stream& stream);

 private:
  struct Unit {
    const UnitSpec* spec = nullptr;
    UnitLayout layout;
    DeviceBuffer whole_buffer;  // zero_stage 2 and 3: from Acquire to the end of the reduction
    Tensor whole;
    std::vector<Tensor> views;  // of whole
    DeviceBuffer reduced_buffer;
    Tensor reduced;            // a part of whole, where there is no buffer of its own
    bool is_clear = false;     // whole holds zeros, or what this reduction will take
    int64_t reducing = 0;      // number in the queue
    int64_t ready = 0;         // micro-batches
    bool has_reduced = false;  // in this step
  };

  bool keeps_whole() const { return options_.zero_stage < 2; }
  // Sums of several reductions need a place of their own.
  bool accumulates() const {
    return options_.reduction == plan::GradientReduction::kPerMicroBatch &&
           options_.micro_batches > 1;
  }
  absl::Status AllocateWhole(Unit& unit);
  absl::Status Reduce(Unit& unit, Stream& stream);

  const ZeroOptions options_;
  Communicator* const group_;
  CollectiveQueue& queue_;
  Device& device_;
  BeforeReduction before_reduction_;
  std::vector<Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_GRADIENT_SHARDS_H_
