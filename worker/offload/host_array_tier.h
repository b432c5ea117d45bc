// Weights or gradients in host memory.
#ifndef TESSERA_WORKER_OFFLOAD_HOST_ARRAY_TIER_H_
#define TESSERA_WORKER_OFFLOAD_HOST_ARRAY_TIER_H_

#include <map>
#include <string>

#include "worker/offload/array_tier.h"
#include "worker/offload/tier_meter.h"

namespace tessera {

// Owns the memory, of `category` in the pool; host and meter outlive it.
class HostArrayTier : public ArrayTier {
 public:
  HostArrayTier(MemoryCategory category, Device& host, TierMeter& meter)
      : category_(category), host_(host), meter_(meter) {}

  absl::Status AddUnit(int unit, const std::string& name, DType dtype, int64_t elements) override;
  absl::Status Store(int unit, const Tensor& from, Stream& stream) override;
  absl::Status StartFetch(int unit, const Tensor& to, Stream& stream) override;
  absl::Status FinishFetch(int /*unit*/) override { return absl::OkStatus(); }

 private:
  struct Unit {
    DeviceBuffer buffer;
    Tensor tensor;
  };

  const MemoryCategory category_;
  Device& host_;
  TierMeter& meter_;
  std::map<int, Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_HOST_ARRAY_TIER_H_
