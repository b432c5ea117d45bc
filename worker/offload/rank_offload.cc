#include "worker/offload/rank_offload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/offload/host_array_tier.h"
#include "worker/offload/host_optimizer_tier.h"
#include "worker/offload/nvme_array_tier.h"
#include "worker/offload/nvme_optimizer_tier.h"
#include "worker/offload/swap_array_tier.h"

namespace tessera {
namespace {

absl::Status NoTier(absl::string_view name, absl::string_view flag) {
  return absl::FailedPreconditionError(
      absl::StrCat("spec.offload: this worker has no ", name, " tier (", flag, ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankOffload>> RankOffload::Create(
    const plan::OffloadOptions& options, const std::vector<int64_t>& unit_elements,
    const std::string& job_uid, const WorkerTiers& tiers) {
  std::unique_ptr<RankOffload> offload(new RankOffload(options, job_uid, tiers));
  TESSERA_RETURN_IF_ERROR(offload->Open(unit_elements));
  return offload;
}

absl::Status RankOffload::Open(const std::vector<int64_t>& unit_elements) {
  if (!options_.is_on()) return absl::OkStatus();
  if (worker_.host == nullptr) return NoTier("host", "--host-memory");
  unit_tiers_.host = worker_.host;
  if (options_.commits_steps()) TESSERA_RETURN_IF_ERROR(OpenSaver().status());
  if (options_.optimizer.tier == plan::Tier::kNvme) {
    optimizer_ = std::make_unique<NvmeOptimizerTier>(*saver_);
  } else if (options_.optimizer.is_on()) {
    optimizer_ = std::make_unique<HostOptimizerTier>(*worker_.host, meter_);
  }
  TESSERA_ASSIGN_OR_RETURN(gradients_,
                           NewArrayTier(options_.gradients.tier, MemoryCategory::kGradients));
  TESSERA_ASSIGN_OR_RETURN(parameters_,
                           NewArrayTier(options_.parameters.tier, MemoryCategory::kParameters));
  unit_tiers_.optimizer = {optimizer_.get(),
                           plan::OffloadedUnits(options_.optimizer, unit_elements)};
  unit_tiers_.gradients = {gradients_.get(),
                           plan::OffloadedUnits(options_.gradients, unit_elements)};
  unit_tiers_.parameters = {parameters_.get(),
                            plan::OffloadedUnits(options_.parameters, unit_elements)};
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ArrayTier>> RankOffload::NewArrayTier(plan::Tier tier,
                                                                     MemoryCategory category) {
  switch (tier) {
    case plan::Tier::kDevice:
      return nullptr;
    case plan::Tier::kHost:
      return std::make_unique<HostArrayTier>(category, *worker_.host, meter_);
    case plan::Tier::kNvme:
      break;
  }
  if (category == MemoryCategory::kParameters) return std::make_unique<NvmeArrayTier>(*saver_);
  auto swap = std::make_unique<SwapArrayTier>(worker_.swap_dir, *buffers_, meter_);
  swap_ = swap.get();
  return swap;
}

int64_t RankOffload::peak_nvme_bytes() const {
  return (saver_ == nullptr ? 0 : saver_->peak_bytes()) +
         (swap_ == nullptr ? 0 : swap_->size_bytes());
}

absl::StatusOr<StateSaver*> RankOffload::OpenSaver() {
  if (saver_ != nullptr) return saver_.get();
  if (worker_.nvme == nullptr) return NoTier("nvme", "--nvme-dir");
  if (worker_.host == nullptr) return NoTier("host", "--host-memory");
  const int count = options_.uses_nvme() ? options_.buffers : plan::OffloadOptions::kFewestBuffers;
  TESSERA_ASSIGN_OR_RETURN(buffers_,
                           TierBuffers::Create(count, options_.buffer_bytes, *worker_.host));
  saver_ = std::make_unique<StateSaver>(*worker_.nvme, job_uid_, *buffers_, meter_);
  return saver_.get();
}

}  // namespace tessera
