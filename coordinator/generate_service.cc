#include "coordinator/generate_service.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "proto/rpc/status.h"

namespace tessera {
namespace {

class GenerateReactor;

// The controller's handle; may outlive the call, which then is null.
class CallSink final : public GenerationSink {
 public:
  explicit CallSink(GenerateReactor* reactor) : reactor_(reactor) {}
  void Send(const v1::GenerateResponse& response) override;
  void End(const absl::Status& status) override;
  void CallEnded() {
    std::lock_guard<std::mutex> lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  std::mutex mutex_;
  GenerateReactor* reactor_;  // guarded by mutex_
};

class GenerateReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  GenerateReactor(Controller* controller, const absl::Status& allowed,
                  const v1::GenerateRequest& request)
      : controller_(controller), sink_(std::make_shared<CallSink>(this)) {
    absl::StatusOr<std::string> id =
        allowed.ok() ? controller_->StartGeneration(request, sink_) : allowed;
    if (!id.ok()) {
      End(id.status());
      return;
    }
    bool cancelled;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      id_ = *id;
      cancelled = cancelled_;
    }
    if (cancelled) controller_->CancelGeneration(*id);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (!ok) outgoing_.clear();
    WriteLocked();
  }

  void OnCancel() override {
    std::string id;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      cancelled_ = true;
      id = id_;
    }
    if (!id.empty()) controller_->CancelGeneration(id);
    End(absl::CancelledError("cancelled by the client"));
  }

  void OnDone() override {
    std::shared_ptr<CallSink> sink;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      sink = sink_;
    }
    sink->CallEnded();
    delete this;
  }

  void Send(const v1::GenerateResponse& response) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    outgoing_.push_back(response);
    WriteLocked();
  }

  void End(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!end_.has_value()) end_ = status;
    WriteLocked();
  }

 private:
  // The next piece, or the end once all are out.
  void WriteLocked() {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      current_ = std::move(outgoing_.front());
      outgoing_.pop_front();
      StartWrite(&current_);
    } else if (end_.has_value()) {
      finished_ = true;
      Finish(ToGrpc(*end_));
    }
  }

  Controller* const controller_;
  const std::shared_ptr<CallSink> sink_;
  std::mutex mutex_;
  std::string id_;                             // of the generation; guarded by mutex_
  v1::GenerateResponse current_;               // gRPC's while writing_
  std::deque<v1::GenerateResponse> outgoing_;  // guarded by mutex_
  std::optional<absl::Status> end_;            // guarded by mutex_
  bool writing_ = false;                       // guarded by mutex_
  bool finished_ = false;                      // guarded by mutex_
  bool cancelled_ = false;                     // guarded by mutex_
};

void CallSink::Send(const v1::GenerateResponse& response) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reactor_ != nullptr) reactor_->Send(response);
}

void CallSink::End(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reactor_ != nullptr) reactor_->End(status);
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* NewGenerateReactor(
    Controller* controller, const absl::Status& allowed, const v1::GenerateRequest& request) {
  return new GenerateReactor(controller, allowed, request);
}

}  // namespace tessera
