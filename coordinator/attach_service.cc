#include "coordinator/attach_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "coordinator/call_service.h"
#include "coordinator/stream_service.h"

namespace tessera {
namespace {

using BidiReactor = grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>;

class AttachReactor final : public QueuedReactor<BidiReactor, v1::CoordinatorMessage> {
 public:
  AttachReactor(Controller* controller, const absl::Status& allowed)
      : controller_(controller), session_(std::make_shared<Session>(this)) {
    if (!allowed.ok()) {
      End(allowed);
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Detach();
      End(absl::OkStatus());
      return;
    }
    if (const std::optional<int64_t> id = session_id(); id.has_value()) {
      controller_->HandleWorkerMessage(*id, incoming_);
    } else if (absl::Status status = Register(); !status.ok()) {
      End(status);
      return;
    }
    StartRead(&incoming_);
  }

  void OnCancel() override { Detach(); }

  void OnDone() override {
    Detach();
    session_->StreamDone();
    delete this;
  }

 private:
  class Session final : public WorkerSession, public ReactorHandle<AttachReactor> {
   public:
    using ReactorHandle::ReactorHandle;
    void Send(const v1::CoordinatorMessage& message) override {
      With([&](AttachReactor& reactor) { reactor.Send(message); });
    }
    void Close(const absl::Status& status) override {
      With([&](AttachReactor& reactor) { reactor.End(status); });
    }
  };

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
  const std::shared_ptr<Session> session_;
  v1::WorkerMessage incoming_;         // gRPC's between StartRead and OnReadDone
  std::optional<int64_t> session_id_;  // guarded by mutex_
  bool detached_ = false;              // guarded by mutex_
};

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
