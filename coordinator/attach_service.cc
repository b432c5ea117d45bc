#include "coordinator/attach_service.h"

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "coordinator/call_service.h"

namespace tessera {
namespace {

class AttachReactor;

// The controller's handle; may outlive the stream, which then is null.
class StreamSession final : public WorkerSession {
 public:
  explicit StreamSession(AttachReactor* reactor) : reactor_(reactor) {}
  void Send(const v1::CoordinatorMessage& message) override;
  void Close(const absl::Status& status) override;
  void StreamEnded() {
    std::lock_guard<std::mutex> lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  std::mutex mutex_;
  AttachReactor* reactor_;  // guarded by mutex_
};

class AttachReactor final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  AttachReactor(Controller* controller, const absl::Status& allowed)
      : controller_(controller), session_(std::make_shared<StreamSession>(this)) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!allowed.ok()) {
      CloseLocked(allowed);
      return;
    }
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Detach();
      Close(absl::OkStatus());
      return;
    }
    if (const std::optional<int64_t> id = session_id(); id.has_value()) {
      controller_->HandleWorkerMessage(*id, incoming_);
    } else if (absl::Status status = Register(); !status.ok()) {
      Close(status);
      return;
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (!ok) outgoing_.clear();
    WriteLocked();
  }

  void OnCancel() override { Detach(); }

  void OnDone() override {
    Detach();
    session_->StreamEnded();
    delete this;
  }

  void Send(const v1::CoordinatorMessage& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_.has_value()) return;
    outgoing_.push_back(message);
    WriteLocked();
  }

  void Close(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    CloseLocked(status);
  }

 private:
  std::optional<int64_t> session_id() {
    std::lock_guard<std::mutex> lock(mutex_);
    return session_id_;
  }

  absl::Status Register() {
    if (!incoming_.has_register_()) {
      return absl::InvalidArgumentError("the first message must be register");
    }
    absl::StatusOr<int64_t> id = controller_->AttachWorker(incoming_.register_(), session_);
    if (!id.ok()) return id.status();
    bool has_ended;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      session_id_ = *id;
      has_ended = detached_;
    }
    // A stream that was cancelled meanwhile had nothing to detach then.
    if (has_ended) controller_->DetachWorker(*id);
    return absl::OkStatus();
  }

  void CloseLocked(const absl::Status& status) {
    if (!closing_.has_value()) closing_ = status;
    WriteLocked();
  }

  // The next message, or the end once all are out.
  void WriteLocked() {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      current_ = std::move(outgoing_.front());
      outgoing_.pop_front();
      StartWrite(&current_);
    } else if (closing_.has_value()) {
      finished_ = true;
      Finish(ToGrpc(*closing_));
    }
  }

  void Detach() {
    std::optional<int64_t> id;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (detached_) return;
      detached_ = true;
      id = session_id_;
    }
    if (id.has_value()) controller_->DetachWorker(*id);
  }

  Controller* const controller_;
  const std::shared_ptr<StreamSession> session_;
  v1::WorkerMessage incoming_;  // gRPC's between StartRead and OnReadDone
  std::mutex mutex_;
  std::optional<int64_t> session_id_;            // guarded by mutex_
  v1::CoordinatorMessage current_;               // gRPC's while writing_
  std::deque<v1::CoordinatorMessage> outgoing_;  // guarded by mutex_
  std::optional<absl::Status> closing_;          // guarded by mutex_
  bool writing_ = false;                         // guarded by mutex_
  bool finished_ = false;                        // guarded by mutex_
  bool detached_ = false;                        // guarded by mutex_
};

void StreamSession::Send(const v1::CoordinatorMessage& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reactor_ != nullptr) reactor_->Send(message);
}

void StreamSession::Close(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reactor_ != nullptr) reactor_->Close(status);
}

class AttachService final : public v1::WorkerAttach::CallbackService {
 public:
  AttachService(Controller* controller, const Authorization* authorization)
      : controller_(controller), authorization_(authorization) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override {
    return new AttachReactor(controller_, authorization_->CheckMayAttach(IdentitiesOf(*context)));
  }

 private:
  Controller* const controller_;
  const Authorization* const authorization_;
};

}  // namespace

std::unique_ptr<v1::WorkerAttach::CallbackService> NewAttachService(
    Controller* controller, const Authorization* authorization) {
  return std::make_unique<AttachService>(controller, authorization);
}

}  // namespace tessera
