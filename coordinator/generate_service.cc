#include "coordinator/generate_service.h"

#include <memory>
#include <string>

#include "coordinator/stream_service.h"

namespace tessera {
namespace {

using WriteReactor = grpc::ServerWriteReactor<v1::GenerateResponse>;

class GenerateReactor final : public QueuedReactor<WriteReactor, v1::GenerateResponse> {
 public:
  GenerateReactor(Controller* controller, const absl::Status& allowed,
                  const v1::GenerateRequest& request)
      : controller_(controller), sink_(std::make_shared<Sink>(this)) {
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
    std::shared_ptr<Sink> sink;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      sink = sink_;
    }
    sink->StreamDone();
    delete this;
  }

 private:
  class Sink final : public GenerationSink, public ReactorHandle<GenerateReactor> {
   public:
    using ReactorHandle::ReactorHandle;
    void Send(const v1::GenerateResponse& response) override {
      With([&](GenerateReactor& reactor) { reactor.Send(response); });
    }
    void End(const absl::Status& status) override {
      With([&](GenerateReactor& reactor) { reactor.End(status); });
    }
  };

  Controller* const controller_;
  const std::shared_ptr<Sink> sink_;
  std::string id_;          // of the generation; guarded by mutex_
  bool cancelled_ = false;  // guarded by mutex_
};

}  // namespace

WriteReactor* NewGenerateReactor(Controller* controller, const absl::Status& allowed,
                                 const v1::GenerateRequest& request) {
  return new GenerateReactor(controller, allowed, request);
}

}  // namespace tessera
