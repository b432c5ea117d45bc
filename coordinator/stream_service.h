// What services with streams share: a reactor that writes from a queue, and a handle that may
// outlive it.
#ifndef TESSERA_COORDINATOR_STREAM_SERVICE_H_
#define TESSERA_COORDINATOR_STREAM_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "proto/rpc/status.h"

namespace tessera {

// Writes messages in the order in which they are sent, then ends. Base: a gRPC reactor of a server
// that writes Messages.
template <typename Base, typename Message>
class QueuedReactor : public Base {
 public:
  // Thread-safe. Dropped once End has been called.
  void Send(const Message& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    outgoing_.push_back(message);
    WriteLocked();
  }
  // Thread-safe. The stream's status, after what was sent; the first one counts.
  void End(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!end_.has_value()) end_ = status;
    WriteLocked();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (!ok) outgoing_.clear();
    WriteLocked();
  }

 protected:
  // Of the derived class's state, too: gRPC calls from threads of its own.
  std::mutex mutex_;

 private:
  // The next message, or the end once all are out.
  void WriteLocked() {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      current_ = std::move(outgoing_.front());
      outgoing_.pop_front();
      this->StartWrite(&current_);
    } else if (end_.has_value()) {
      finished_ = true;
      this->Finish(ToGrpc(*end_));
    }
  }

  Message current_;                  // gRPC's while writing_
  std::deque<Message> outgoing_;     // guarded by mutex_
  std::optional<absl::Status> end_;  // guarded by mutex_
  bool writing_ = false;             // guarded by mutex_
  bool finished_ = false;            // guarded by mutex_
};

// The controller's way to a reactor, which gRPC deletes when its stream is done. Thread-safe.
template <typename Reactor>
class ReactorHandle {
 public:
  explicit ReactorHandle(Reactor* reactor) : reactor_(reactor) {}
  // Nothing once the stream is done.
  template <typename Call>
  void With(const Call& call) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (reactor_ != nullptr) call(*reactor_);
  }
  // By the reactor, before it goes.
  void StreamDone() {
    std::lock_guard<std::mutex> lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Reactor* reactor_;  // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_STREAM_SERVICE_H_
