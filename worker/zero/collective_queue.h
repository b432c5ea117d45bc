// Collectives of one group that have been started and not yet waited for, in their order.
#ifndef TESSERA_WORKER_ZERO_COLLECTIVE_QUEUE_H_
#define TESSERA_WORKER_ZERO_COLLECTIVE_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace tessera {

// Used by one thread. The group outlives it. Whoever calls the group's collectives otherwise waits
// for all of the queue first.
class CollectiveQueue {
 public:
  explicit CollectiveQueue(Communicator* group) : group_(group) {}
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;
  // What is still pending, after an error somewhere, ends with the group: members must not be
  // waited for that will never come.
  ~CollectiveQueue();

  // Its number, ascending from 1. `finish` is called once, when it has completed.
  int64_t Add(std::unique_ptr<CollectiveHandle> handle, std::function<absl::Status()> finish);
  // Waits for this one and all before it; at once where that has been done.
  absl::Status WaitFor(int64_t number);
  absl::Status WaitForAll() { return WaitFor(last_); }

 private:
  struct Pending {
    std::unique_ptr<CollectiveHandle> handle;
    std::function<absl::Status()> finish;
  };

  Communicator* const group_;
  std::deque<Pending> pending_;
  int64_t last_ = 0;  // number of pending_.back(), or of the last one that was
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_COLLECTIVE_QUEUE_H_
