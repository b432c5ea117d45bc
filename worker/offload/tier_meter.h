// What one rank moves between its device and its tiers, and how long it waits for them.
#ifndef TESSERA_WORKER_OFFLOAD_TIER_METER_H_
#define TESSERA_WORKER_OFFLOAD_TIER_METER_H_

#include <chrono>
#include <cstdint>

#include "plan/offload.h"

namespace tessera {

struct TierCounts {
  int64_t read_bytes = 0;     // from the tier
  int64_t written_bytes = 0;  // to the tier
  int64_t late_reads = 0;     // had not come when they were needed
  double wait_seconds = 0;    // for reads that came too late, full buffers, the commit
};

// Used by one thread: the one that trains.
class TierMeter {
 public:
  TierCounts& of(plan::Tier tier) { return tier == plan::Tier::kHost ? host_ : nvme_; }
  const TierCounts& host() const { return host_; }
  const TierCounts& nvme() const { return nvme_; }
  double wait_seconds() const { return host_.wait_seconds + nvme_.wait_seconds; }
  void Reset() { host_ = nvme_ = {}; }

 private:
  TierCounts host_, nvme_;
};

// Adds the time of its life to the tier's waiting.
class TierWait {
 public:
  explicit TierWait(TierCounts& counts) : counts_(counts) {}
  ~TierWait() {
    counts_.wait_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  TierWait(const TierWait&) = delete;
  TierWait& operator=(const TierWait&) = delete;

 private:
  TierCounts& counts_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_TIER_METER_H_
