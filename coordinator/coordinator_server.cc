#include "coordinator/coordinator_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/attach_service.h"
#include "coordinator/cluster_service.h"
#include "coordinator/jobs_service.h"

namespace tessera {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;  // job specs and states; tensors never travel here

class Server final : public CoordinatorServer {
 public:
  Server(absl::Duration drain, Controller* controller, const Authorization* authorization)
      : drain_(drain),
        controller_(controller),
        jobs_(NewJobsService(controller, authorization)),
        cluster_(NewClusterService(controller, authorization)),
        attach_(NewAttachService(controller, authorization)) {}

  ~Server() override { Stop(); }

  absl::Status Listen(const CoordinatorServerOptions& options) {
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials = ServerTls(options.tls);
    if (!credentials.ok()) return credentials.status();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options.listen, *credentials, &port);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    // Clients ping every 10 s (see the clients); faster pings would be answered with GOAWAY.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(jobs_.get());
    builder.RegisterService(cluster_.get());
    builder.RegisterService(attach_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat("--listen=", options.listen, ": cannot be bound"));
    }
    address_ = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
    SetServing(true);
    ticker_ = std::thread([this] { TickUntilStopped(); });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Stop() override {
    if (server_ == nullptr) return;
    SetServing(false);
    controller_->Shutdown();
    server_->Shutdown(absl::ToChronoTime(absl::Now() + drain_));
    server_->Wait();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_all();
    ticker_.join();
    server_.reset();
  }

 private:
  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    for (const char* service :
         {"tessera.v1.Jobs", "tessera.v1.Cluster", "tessera.v1.WorkerAttach"}) {
      health->SetServingStatus(service, serving);
    }
    health->SetServingStatus(serving);
  }

  void TickUntilStopped() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(50), [this] { return stopped_; })) {
      lock.unlock();
      controller_->Tick();
      lock.lock();
    }
  }

  const absl::Duration drain_;
  Controller* const controller_;
  const std::unique_ptr<v1::Jobs::CallbackService> jobs_;
  const std::unique_ptr<v1::Cluster::CallbackService> cluster_;
  const std::unique_ptr<v1::WorkerAttach::CallbackService> attach_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::thread ticker_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;  // guarded by mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const CoordinatorServerOptions& options, Controller* controller,
    const Authorization* authorization) {
  auto server = std::make_unique<Server>(options.drain, controller, authorization);
  absl::Status status = server->Listen(options);
  if (!status.ok()) return status;
  return server;
}

}  // namespace tessera
