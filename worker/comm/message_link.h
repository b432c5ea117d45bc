// A connection to one member whose memory cannot be mapped: messages, under way while the caller
// does something else.
#ifndef TESSERA_WORKER_COMM_MESSAGE_LINK_H_
#define TESSERA_WORKER_COMM_MESSAGE_LINK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

// One message under way. Used by one thread. Once destroyed, complete or not, nobody touches its
// memory any more.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // True once complete. UNAVAILABLE where the connection is gone.
  virtual absl::StatusOr<bool> Test() = 0;
  // Sleeps until complete or failed, or for `limit`.
  virtual void WaitFor(absl::Duration limit) = 0;
};

// Messages of one channel arrive in the order they were sent. Used by one thread.
class MessageLink {
 public:
  virtual ~MessageLink() = default;
  // The memory stays valid until the transfer is complete or destroyed. A receive takes a message
  // of at most size_bytes; a longer one is a programmer's error.
  virtual absl::StatusOr<std::unique_ptr<Transfer>> Send(uint64_t channel, const void* data,
                                                         int64_t size_bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Transfer>> Recv(uint64_t channel, void* data,
                                                         int64_t size_bytes) = 0;
};

// Tells whether another member's process is still there. Thread-safe. Cheap enough for every 10 ms,
// not for every operation.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  // OK, or the reason that member sent with Notify.
  virtual absl::Status Notice() = 0;
  // Whether it has left the group or its process is gone.
  virtual bool IsGone() = 0;
  // Hands `reason` to that member's Notice. Does not block.
  virtual void Notify(const absl::Status& reason) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_MESSAGE_LINK_H_
