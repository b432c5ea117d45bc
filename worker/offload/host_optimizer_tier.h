// Optimizer state in host memory.
#ifndef TESSERA_WORKER_OFFLOAD_HOST_OPTIMIZER_TIER_H_
#define TESSERA_WORKER_OFFLOAD_HOST_OPTIMIZER_TIER_H_

#include <map>
#include <string>

#include "kernels/device.h"
#include "worker/offload/optimizer_tier.h"
#include "worker/offload/tier_meter.h"

namespace tessera {

// Each unit is one piece, which stays where it is. Owns the memory; host and meter outlive it.
class HostOptimizerTier : public OptimizerTier {
 public:
  HostOptimizerTier(Device& host, TierMeter& meter) : host_(host), meter_(meter) {}

  absl::Status AddUnit(int unit, const std::string& name, int64_t first, int64_t elements) override;
  absl::Status StartPass() override { return absl::OkStatus(); }
  absl::Status Visit(int unit, Access access,
                     absl::FunctionRef<absl::Status(const StatePiece&)> visit) override;
  absl::Status FinishPass() override { return absl::OkStatus(); }
  absl::Status Read(StateArray array, int unit, int64_t begin, absl::Span<float> values) override;
  absl::Status WriteMaster(int unit, int64_t begin, absl::Span<const float> values) override;
  absl::Status FinishWrites() override { return absl::OkStatus(); }

 private:
  struct Unit {
    DeviceBuffer buffer;
    StatePiece piece;
  };

  Device& host_;
  TierMeter& meter_;
  std::map<int, Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_HOST_OPTIMIZER_TIER_H_
