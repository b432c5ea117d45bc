#include "worker/service/attach_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "proto/rpc/status.h"
#include "proto/tessera/v1/attach.grpc.pb.h"

namespace tessera {
namespace {

using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>;

constexpr auto kFirstBackoff = std::chrono::milliseconds(50);
constexpr auto kLastBackoff = std::chrono::milliseconds(2000);

class Client final : public AttachClient {
 public:
  Client(std::shared_ptr<grpc::ChannelCredentials> credentials, std::string coordinator,
         Logger* log)
      : credentials_(std::move(credentials)), coordinator_(std::move(coordinator)), log_(log) {}

  ~Client() override { Stop(); }

  void Start(AttachCallbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    thread_ = std::thread([this] { AttachUntilStopped(); });
  }

  void Send(const v1::WorkerMessage& message) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!attached_) return;
    outgoing_.push_back(message);
    wake_.notify_all();
  }

  void Stop() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void AttachUntilStopped() {
    auto backoff = kFirstBackoff;
    while (true) {
      bool was_registered = false;
      const absl::Status status = AttachOnce(&was_registered);
      std::unique_lock<std::mutex> lock(mutex_);
      if (stopping_) return;
      backoff = was_registered ? kFirstBackoff : std::min(2 * backoff, kLastBackoff);
      log_->Warning("not attached to the coordinator",
                    {{"coordinator", coordinator_}, {"error", status.ToString()}});
      if (wake_.wait_for(lock, backoff, [this] { return stopping_; })) return;
    }
  }

  // One stream from register to its end.
  absl::Status AttachOnce(bool* was_registered) {
    const auto stub = v1::WorkerAttach::NewStub(NewChannel());
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream = stub->Attach(&context);
    // The callbacks have locks of their own, under which others call Send: none is called with
    // mutex_ held. What changes after this is in the backlog.
    v1::WorkerMessage registration;
    *registration.mutable_register_() = callbacks_.make_register();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) {
        context.TryCancel();
        return FromGrpc(stream->Finish());
      }
      outgoing_.clear();
      heartbeat_interval_ = std::chrono::milliseconds(500);
      outgoing_.push_back(std::move(registration));
      reading_ = true;
      attached_ = true;
    }
    // Reports that come from now on are queued behind register; the backlog may repeat some of
    // them, which the coordinator takes as one.
    std::vector<v1::WorkerMessage> backlog = callbacks_.make_backlog();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (v1::WorkerMessage& message : backlog) outgoing_.push_back(std::move(message));
    }
    std::thread writer([this, &stream, &context] { WriteUntilEnded(*stream, context); });
    v1::CoordinatorMessage message;
    while (stream->Read(&message)) {
      if (message.has_registered()) {
        *was_registered = true;
        log_->Info("attached to the coordinator", {{"coordinator", coordinator_}});
        std::lock_guard<std::mutex> lock(mutex_);
        heartbeat_interval_ = std::chrono::milliseconds(
            std::max<int64_t>(10, message.registered().heartbeat_interval_ms()));
      } else {
        callbacks_.handle(message);
      }
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      attached_ = false;
      reading_ = false;
      wake_.notify_all();
    }
    writer.join();
    return FromGrpc(stream->Finish());
  }

  // A fresh one for every attempt: a channel of long standing waits between its attempts as long as
  // one of them may take, which is either too long to come back soon or, on a busy machine, too
  // short for a TLS handshake. The back-off between attempts is AttachUntilStopped's.
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10000);
    // The server allows pings every 5 s.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetMaxReceiveMessageSize(16 << 20);
    return grpc::CreateCustomChannel(coordinator_, credentials_, arguments);
  }

  void WriteUntilEnded(Stream& stream, grpc::ClientContext& context) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto next_heartbeat = std::chrono::steady_clock::now() + heartbeat_interval_;
    while (reading_) {
      if (!outgoing_.empty()) {
        const v1::WorkerMessage message = std::move(outgoing_.front());
        outgoing_.pop_front();
        lock.unlock();
        const bool written = stream.Write(message);
        lock.lock();
        if (!written) break;  // the reader will see the end, too
        continue;
      }
      if (stopping_) {
        lock.unlock();
        stream.WritesDone();
        lock.lock();
        // The coordinator answers with the end of the stream; a coordinator that is away does not.
        if (!wake_.wait_for(lock, std::chrono::seconds(1), [this] { return !reading_; })) {
          context.TryCancel();
        }
        break;
      }
      if (std::chrono::steady_clock::now() >= next_heartbeat) {
        lock.unlock();
        v1::WorkerMessage message;
        *message.mutable_heartbeat() = callbacks_.make_heartbeat();
        lock.lock();
        outgoing_.push_back(std::move(message));
        next_heartbeat = std::chrono::steady_clock::now() + heartbeat_interval_;
        continue;
      }
      wake_.wait_until(lock, next_heartbeat);
    }
  }

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const std::string coordinator_;
  Logger* const log_;
  AttachCallbacks callbacks_;  // constant after Start
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<v1::WorkerMessage> outgoing_;             // guarded by mutex_
  std::chrono::milliseconds heartbeat_interval_{500};  // guarded by mutex_
  bool attached_ = false;                              // guarded by mutex_
  bool reading_ = false;                               // guarded by mutex_
  bool stopping_ = false;                              // guarded by mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<AttachClient>> AttachClient::Create(
    const AttachClientOptions& options, Logger* log) {
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = ClientTls(options.tls);
  if (!credentials.ok()) return credentials.status();
  return std::make_unique<Client>(*std::move(credentials), options.coordinator, log);
}

}  // namespace tessera
