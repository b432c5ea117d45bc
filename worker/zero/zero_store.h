// Weights and gradients of one rank: what the model asks for and what the optimizer updates. What
// is sharded depends on the zero_stage (zero_options.h), what is on the device on the tiers
// (worker/offload/unit_tiers.h).
#ifndef TESSERA_WORKER_ZERO_ZERO_STORE_H_
#define TESSERA_WORKER_ZERO_ZERO_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/model/parameter_store.h"
#include "worker/model/units.h"
#include "worker/zero/collective_queue.h"
#include "worker/zero/gradient_shards.h"
#include "worker/zero/parameter_shards.h"
#include "worker/zero/unit_layout.h"
#include "worker/zero/zero_options.h"

namespace tessera {

// One parameter of the store: units()[unit].parameters[index].
struct ParameterId {
  int unit = 0;
  int index = 0;
};

// Owns the flat buffers; tiers, group and device outlive it. Used by one thread. All ranks of the
// group ask for the same units in the same order. Whoever calls the group's collectives otherwise
// settles the store first.
class ZeroStore : public ParameterStore {
 public:
  // Buffers of all units; weights are 0. group: the zero group; null: none, for evaluating and
  // generating. RESOURCE_EXHAUSTED from the arena or a tier; nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<ZeroStore>> Create(std::vector<UnitSpec> units,
                                                           const ZeroOptions& options,
                                                           Communicator* group, Device& device,
                                                           Stream& stream,
                                                           const UnitTiers& tiers = {});

  const std::vector<UnitSpec>& units() const override { return specs_; }
  absl::StatusOr<absl::Span<const Tensor>> AcquireParameters(int unit, Stream& stream) override;
  absl::Status ReleaseParameters(int unit, Stream& stream) override;
  absl::Status PrefetchParameters(absl::Span<const int> units, Stream& stream) override;
  absl::StatusOr<absl::Span<const Tensor>> AcquireGradients(int unit, Stream& stream) override;
  absl::Status GradientsReady(int unit, Stream& stream) override;

  // Waits for what it has started.
  absl::Status Settle() { return queue_.WaitForAll(); }

  const ZeroOptions& options() const { return options_; }
  const UnitTiers& tiers() const { return tiers_; }
  const UnitLayout& layout(int unit) const { return layouts_[unit]; }
  ParameterShards& parameters() { return parameters_; }
  const ParameterShards& parameters() const { return parameters_; }
  GradientShards& gradients() { return gradients_; }
  const GradientShards& gradients() const { return gradients_; }

  // NOT_FOUND: no parameter of this name.
  absl::StatusOr<ParameterId> Find(const std::string& name) const;
  // Elements of the local part of a parameter from `begin` on, set from fp32 values, as far as they
  // are here. REQUIRES: in range; of what is offloaded, between parameters().BeginUpdate and
  // EndUpdate.
  absl::Status Write(ParameterId id, int64_t begin, absl::Span<const float> values, Stream& stream);

 private:
  ZeroStore(std::vector<UnitSpec> specs, const ZeroOptions& options, Communicator* group,
            Device& device, const UnitTiers& tiers);

  const std::vector<UnitSpec> specs_;
  const ZeroOptions options_;
  const UnitTiers tiers_;
  std::vector<UnitLayout> layouts_;
  ParameterShards parameters_;
  GradientShards gradients_;
  CollectiveQueue queue_;  // ends before what its handles use
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_ZERO_STORE_H_
