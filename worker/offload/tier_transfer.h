// Bytes on their way from or to the nvme tier.
#ifndef TESSERA_WORKER_OFFLOAD_TIER_TRANSFER_H_
#define TESSERA_WORKER_OFFLOAD_TIER_TRANSFER_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "storage/tier_store.h"
#include "worker/offload/tier_meter.h"

namespace tessera {

// Used by one thread. Move-only; the destructor waits, so that the memory is its owner's again.
class TierTransfer {
 public:
  using Done = std::function<void(absl::Status)>;

  // Nothing, which is done.
  TierTransfer() = default;
  // start begins the operation, which calls Done when it ends, on any thread; an error that it
  // returns instead comes with Wait.
  static TierTransfer Start(absl::FunctionRef<absl::Status(const Done&)> start);
  // Of a value of the store.
  static TierTransfer Read(TierStore& store, const TierKey& key, DType dtype, int64_t num_elements,
                           absl::Span<uint8_t> to);
  TierTransfer(TierTransfer&&) = default;
  TierTransfer& operator=(TierTransfer&& other) noexcept;
  ~TierTransfer();

  bool is_done() const;
  // Counts the time of waiting; then it is nothing. The operation's error.
  absl::Status Wait(TierCounts& counts);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<absl::Status> result;  // guarded by mutex

    absl::Status Await();
  };

  std::shared_ptr<State> state_;  // also the operation's, until it is done
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_TIER_TRANSFER_H_
