// One rank's gradients, each unit one flat buffer that micro-batches add to, and their reduction
// over the zero group. What is offloaded is on the device only while it is computed with.
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
#include "worker/offload/unit_tiers.h"
#include "worker/zero/collective_queue.h"
#include "worker/zero/unit_layout.h"
#include "worker/zero/zero_options.h"

namespace tessera {

// Used by one thread. Owns the buffers; tiers, queue, group and device outlive it.
//
// A reduction is started when a unit is ready and completes while the next unit's backward runs; at
// most one is pending. All stages reduce in the same way, and a sum over micro-batches is taken of
// reduced shards in their order, so that all give the same bits.
class GradientShards {
 public:
  // Called before a unit's gradients are reduced, while its whole gradients are there.
  using BeforeReduction = std::function<absl::Status(int unit)>;

  // offload: empty where the options defer the reduction.
  GradientShards(const ZeroOptions& options, const OffloadedKind<ArrayTier>& offload,
                 Communicator* group, CollectiveQueue& queue, Device& device)
      : options_(options), offload_(offload), group_(group), queue_(queue), device_(device) {}

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
  // deferred and has not been finished.
  absl::Span<const Tensor> whole(int unit) const { return units_[unit].views; }
  const Tensor& flat(int unit) const { return units_[unit].whole; }

  bool is_offloaded(int unit) const { return offload_.has(unit); }
  // After FinishReduction: the rank's shard of the group's sum, on the device until it is released.
  absl::StatusOr<Tensor> AcquireReduced(int unit, Stream& stream);
  // is_changed: what has been written to it is kept.
  absl::Status ReleaseReduced(int unit, bool is_changed, Stream& stream);
  // Likewise the group's sum, whole. All ranks of the group ask for it.
  absl::StatusOr<Tensor> AcquireWholeSum(int unit, Stream& stream);
  void ReleaseWholeSum(int unit);

 private:
  struct Unit {
    const UnitSpec* spec = nullptr;
    UnitLayout layout;
    // Where it is not kept: from Acquire to the end of the reduction.
    DeviceBuffer whole_buffer;
    Tensor whole;
    std::vector<Tensor> views;    // of whole
    DeviceBuffer reduced_buffer;  // of what is offloaded: while it is acquired
    Tensor reduced;               // a part of whole, where there is no buffer of its own
    bool is_clear = false;        // whole holds zeros, or what this reduction will take
    int64_t reducing = 0;         // number in the queue
    int64_t ready = 0;            // micro-batches
    bool has_reduced = false;     // in this step
  };

  bool keeps_whole(int unit) const { return options_.zero_stage < 2 && !offload_.has(unit); }
  // Sums of several reductions need a place of their own.
  bool accumulates() const {
    return options_.reduction == plan::GradientReduction::kPerMicroBatch &&
           options_.micro_batches > 1;
  }
  bool reduces_each() const {
    return options_.reduction == plan::GradientReduction::kPerMicroBatch;
  }
  ElementRange own_shard(const Unit& unit) const {
    return unit.layout.shard(group_ == nullptr ? 0 : group_->group_rank());
  }
  absl::Status AllocateWhole(int unit);
  static void FreeWhole(Unit& unit);
  // Of `elements` of the gradients' type, for a time.
  absl::Status AllocateTransient(const Unit& unit, int64_t elements, DeviceBuffer& buffer,
                                 Tensor& tensor);
  absl::Status Fetch(int unit, const Tensor& to, Stream& stream);
  absl::Status Reduce(int unit, Stream& stream);
  // When the reduction is done: its result, output, is where sums belong.
  absl::Status FinishReduce(int unit, bool is_first, const Tensor& output, Stream& stream);
  absl::Status AddToOffloaded(int unit, const Tensor& sum, Stream& stream);

  const ZeroOptions options_;
  const OffloadedKind<ArrayTier> offload_;
  Communicator* const group_;
  CollectiveQueue& queue_;
  Device& device_;
  BeforeReduction before_reduction_;
  std::vector<Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_GRADIENT_SHARDS_H_
