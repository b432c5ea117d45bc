// An operation that has been started: a state machine that never blocks. Its communicator moves all
// started operations on while it waits for one of them, so that members which wait in different
// orders still meet.
#ifndef TESSERA_WORKER_COMM_OPERATION_H_
#define TESSERA_WORKER_COMM_OPERATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/message_link.h"

namespace tessera {

// Used by the communicator's thread.
class Operation {
 public:
  Operation(CollectiveKind kind, int64_t sequence, int64_t size_bytes)
      : kind_(kind), sequence_(sequence), size_bytes_(size_bytes) {}
  virtual ~Operation() = default;

  // Goes as far as possible without waiting; true once complete. Not called again after true or an
  // error. False without progress also where the group is aborted.
  virtual absl::StatusOr<bool> Advance() = 0;
  // Whether completion still depends on that member; looks anew at what it has done.
  virtual bool Misses(int member) const = 0;
  // A transfer that must complete first, to sleep on; null: whatever is missing rings the board.
  virtual Transfer* blocker() const { return nullptr; }
  // Ends all transfers, complete or not: nobody touches the tensors through them any more.
  virtual void Cancel() {}

  CollectiveKind kind() const { return kind_; }
  int64_t sequence() const { return sequence_; }
  int64_t size_bytes() const { return size_bytes_; }
  bool is_collective() const {
    return kind_ != CollectiveKind::kSend && kind_ != CollectiveKind::kRecv;
  }
  bool done() const { return done_; }
  void set_done() { done_ = true; }

 private:
  const CollectiveKind kind_;
  const int64_t sequence_;
  const int64_t size_bytes_;
  bool done_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_OPERATION_H_
