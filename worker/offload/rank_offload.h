// All that one rank of a job keeps outside of its device.
#ifndef TESSERA_WORKER_OFFLOAD_RANK_OFFLOAD_H_
#define TESSERA_WORKER_OFFLOAD_RANK_OFFLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/offload.h"
#include "worker/offload/array_tier.h"
#include "worker/offload/optimizer_tier.h"
#include "worker/offload/state_saver.h"
#include "worker/offload/tier_buffers.h"
#include "worker/offload/tier_meter.h"
#include "worker/offload/unit_tiers.h"
#include "worker/offload/worker_tiers.h"

namespace tessera {

class SwapArrayTier;

// Used by one thread. Owns the tiers' objects and what they hold; the worker's tiers outlive it.
class RankOffload {
 public:
  // unit_elements: of the rank's units' flat buffers. FAILED_PRECONDITION: the worker has no such
  // tier; RESOURCE_EXHAUSTED from the pool of host memory.
  static absl::StatusOr<std::unique_ptr<RankOffload>> Create(
      const plan::OffloadOptions& options, const std::vector<int64_t>& unit_elements,
      const std::string& job_uid, const WorkerTiers& tiers);

  const plan::OffloadOptions& options() const { return options_; }
  const UnitTiers& unit_tiers() const { return unit_tiers_; }
  TierMeter& meter() { return meter_; }
  // Tier of a unit's state of one kind.
  plan::Tier TierOfOptimizer(int unit) const {
    return unit_tiers_.optimizer.has(unit) ? options_.optimizer.tier : plan::Tier::kDevice;
  }
  plan::Tier TierOfGradients(int unit) const {
    return unit_tiers_.gradients.has(unit) ? options_.gradients.tier : plan::Tier::kDevice;
  }
  plan::Tier TierOfParameters(int unit) const {
    return unit_tiers_.parameters.has(unit) ? options_.parameters.tier : plan::Tier::kDevice;
  }

  // On disk, so far the most at once.
  int64_t peak_nvme_bytes() const;

  // Null where the job holds nothing on the nvme tier and saves nothing now.
  StateSaver* saver() { return saver_.get(); }
  // For a job that saves its state only now: takes buffers for it. RESOURCE_EXHAUSTED;
  // FAILED_PRECONDITION: the worker has no nvme tier.
  absl::StatusOr<StateSaver*> OpenSaver();

 private:
  RankOffload(const plan::OffloadOptions& options, const std::string& job_uid,
              const WorkerTiers& tiers)
      : options_(options), job_uid_(job_uid), worker_(tiers) {}
  absl::Status Open(const std::vector<int64_t>& unit_elements);
  absl::StatusOr<std::unique_ptr<ArrayTier>> NewArrayTier(plan::Tier tier, MemoryCategory category);

  const plan::OffloadOptions options_;
  const std::string job_uid_;
  const WorkerTiers worker_;
  TierMeter meter_;
  std::unique_ptr<TierBuffers> buffers_;
  std::unique_ptr<StateSaver> saver_;
  std::unique_ptr<OptimizerTier> optimizer_;
  std::unique_ptr<ArrayTier> gradients_;
  std::unique_ptr<ArrayTier> parameters_;
  const SwapArrayTier* swap_ = nullptr;  // gradients_, where that is one
  UnitTiers unit_tiers_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_RANK_OFFLOAD_H_
