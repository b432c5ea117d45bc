// The tiers of this worker: its pool of host memory and its folder on the local disk, and what they
// hold of which jobs.
#ifndef TESSERA_WORKER_SERVICE_TIER_HOLDER_H_
#define TESSERA_WORKER_SERVICE_TIER_HOLDER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_device.h"
#include "proto/daemon/log.h"
#include "proto/tessera/v1/attach.pb.h"
#include "storage/tier_store.h"
#include "worker/offload/tier_meter.h"
#include "worker/offload/worker_tiers.h"

namespace tessera {

struct TierHolderOptions {
  std::string worker;             // "workers/w0"
  int64_t host_memory_bytes = 0;  // 0: no host tier
  int num_threads = 1;            // of an update on the host
  bool requires_pinned = false;   // an error where pages cannot be locked, instead of a warning
  std::string nvme_dir;           // empty: no nvme tier
  bool requires_nvme = false;     // an error where its file system has no direct IO, instead of a
                                  // warning and no nvme tier
  int64_t nvme_reserve_bytes = 0;
};

// Counted since the start of the process.
struct TierTotals {
  TierCounts host, nvme;
};

// Thread-safe. Outlives the jobs.
class TierHolder {
 public:
  // Errors name the flag: RESOURCE_EXHAUSTED from the system (--host-memory, --require-pinned);
  // those of TierStore::Open (--nvme-dir).
  static absl::StatusOr<std::unique_ptr<TierHolder>> Create(const TierHolderOptions& options,
                                                            Logger* log);
  ~TierHolder();

  WorkerTiers tiers() const { return {host_.get(), nvme_.get(), swap_dir_}; }
  bool is_pinned() const { return is_pinned_; }

  // Of all jobs, and of one; nothing: none is held.
  std::vector<v1::SavedState> Saved() const;
  std::optional<v1::SavedState> SavedOf(const std::string& job_uid) const;
  // Removes what the nvme tier holds of the job, soon, on a thread of its own.
  void Discard(const std::string& job_uid);

  void AddToHeartbeat(v1::Heartbeat& heartbeat) const;
  // What a step of a job has moved.
  void Count(const TierCounts& host, const TierCounts& nvme);
  TierTotals totals() const;

 private:
  explicit TierHolder(Logger* log) : log_(log) {}
  absl::Status Open(const TierHolderOptions& options);
  void DiscardUntilStopped();

  Logger* const log_;
  std::unique_ptr<CpuDevice> host_;
  std::unique_ptr<TierStore> nvme_;
  std::string swap_dir_;
  bool is_pinned_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> discards_;  // job uids; guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  TierTotals totals_;                 // guarded by mutex_
  std::thread discarder_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_TIER_HOLDER_H_
