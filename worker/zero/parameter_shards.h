// One rank's weights, each unit one flat buffer: whole, or (zero_stage 3) the rank's shard,
// gathered while it is used. What is offloaded is fetched from its tier for as long.
#ifndef TESSERA_WORKER_ZERO_PARAMETER_SHARDS_H_
#define TESSERA_WORKER_ZERO_PARAMETER_SHARDS_H_

#include <cstdint>
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
class ParameterShards {
 public:
  // group: null, a group of one.
  ParameterShards(const ZeroOptions& options, const OffloadedKind<ArrayTier>& offload,
                  Communicator* group, CollectiveQueue& queue, Device& device)
      : options_(options), offload_(offload), group_(group), queue_(queue), device_(device) {}
  // What is still being fetched, after an error somewhere, is waited for: its memory is given back.
  ~ParameterShards();

  // Units are numbered in the order of these calls. Weights are 0. RESOURCE_EXHAUSTED from the
  // arena or the tier.
  absl::Status AddUnit(const UnitSpec& spec, const UnitLayout& layout, Stream& stream);

  // As ParameterStore.
  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit, Stream& stream);
  absl::Status Release(int unit);
  absl::Status Prefetch(absl::Span<const int> units, Stream& stream);

  // Between these two, tensor and Held can be written, of what is offloaded as well. REQUIRES: the
  // unit is not acquired. keep: what they hold before is to be read.
  absl::Status BeginUpdate(int unit, bool keep, Stream& stream);
  absl::Status EndUpdate(int unit, Stream& stream);

  bool is_sharded(int unit) const { return units_[unit].is_sharded; }
  bool is_offloaded(int unit) const { return offload_.has(unit); }
  // Where this rank's part of the flat buffer is, and what it is: all, or the rank's shard.
  const ElementRange& held(int unit) const { return units_[unit].held; }
  // Of what is offloaded: inside of an update.
  const Tensor& tensor(int unit) const { return units_[unit].tensor; }
  // Elements `range` of the flat buffer. REQUIRES: inside of held().
  Tensor Held(int unit, const ElementRange& range) const {
    return units_[unit].tensor.Slice(range.begin - units_[unit].held.begin, range.count);
  }

 private:
  struct Unit {
    const UnitSpec* spec = nullptr;
    UnitLayout layout;
    bool is_sharded = false;
    ElementRange held;
    DeviceBuffer buffer;  // of what is offloaded: inside of an update
    Tensor tensor;        // held elements
    // Of the whole unit; of one that comes and goes while it is there.
    std::vector<Tensor> views;
    DeviceBuffer gathered;
    Tensor whole;  // of gathered
    bool is_fetching = false;
    int64_t gathering = 0;  // number in the queue
    int users = 0;
  };

  // Weights are there for a use only.
  bool comes_and_goes(int unit) const { return units_[unit].is_sharded || offload_.has(unit); }
  absl::Status Gather(int unit, Stream& stream);
  // Of what is offloaded: it has been fetched.
  absl::Status FinishFetch(int unit, Stream& stream);
  absl::Status StartAllGather(Unit& unit, const Tensor& own, Stream& stream);
  absl::Status AllocateHeld(Unit& unit, MemoryCategory category);

  const ZeroOptions options_;
  const OffloadedKind<ArrayTier> offload_;
  Communicator* const group_;
  CollectiveQueue& queue_;
  Device& device_;
  std::vector<Unit> units_;
};

// A flat buffer's parts, in the shapes of the unit's parameters.
std::vector<Tensor> ParameterViews(const UnitSpec& spec, const UnitLayout& layout,
                                   const Tensor& flat);

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_PARAMETER_SHARDS_H_
