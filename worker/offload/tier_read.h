// A value on its way from the nvme tier.
#ifndef TESSERA_WORKER_OFFLOAD_TIER_READ_H_
#define TESSERA_WORKER_OFFLOAD_TIER_READ_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "storage/tier_store.h"
#include "worker/offload/tier_meter.h"

namespace tessera {

// Used by one thread. Move-only; the destructor waits, so that the memory is its owner's again.
class TierRead {
 public:
  TierRead() = default;
  // An error of the store comes with Wait.
  static TierRead Start(TierStore& store, const TierKey& key, DType dtype, int64_t num_elements,
                        absl::Span<uint8_t> to);
  TierRead(TierRead&&) = default;
  TierRead& operator=(TierRead&& other) noexcept;
  ~TierRead();

  // Counts the value, its lateness and the time of waiting. Errors of TierStore::StartRead.
  absl::Status Wait(TierCounts& counts);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<absl::Status> result;  // guarded by mutex
    int64_t size_bytes = 0;

    bool is_done() {
      std::lock_guard<std::mutex> lock(mutex);
      return result.has_value();
    }
    absl::Status Await();
  };

  std::shared_ptr<State> state_;  // also the store's, until it is done
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_TIER_READ_H_
