#include "worker/comm/tcp_mesh.h"

#include <signal.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gloo/transport/address.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/pair.h"
#include "gloo/transport/tcp/unbound_buffer.h"

namespace tessera {
namespace {

namespace tcp = gloo::transport::tcp;

// Gloo waits five times as long for a connection.
constexpr std::chrono::milliseconds kConnectTimeout(1000);

absl::Status GlooError(const std::string& what, const std::exception& error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", error.what()));
}

class GlooDevice : public TcpDevice {
 public:
  explicit GlooDevice(std::shared_ptr<tcp::Device> device) : device_(std::move(device)) {}
  const std::shared_ptr<tcp::Device>& device() const { return device_; }

 private:
  const std::shared_ptr<tcp::Device> device_;
};

// Gloo's own waits cannot be polled, and close every connection of the group when they time out.
class PolledBuffer : public tcp::UnboundBuffer {
 public:
  PolledBuffer(const std::shared_ptr<tcp::Context>& context, void* data, int64_t size_bytes)
      : tcp::UnboundBuffer(context, data, size_bytes) {}

  // Throws the connection's error.
  bool Test(bool is_send) {
    std::lock_guard<std::mutex> lock(m_);
    if (IsComplete(is_send)) return true;
    throwIfException();
    return false;
  }
  void WaitFor(bool is_send, std::chrono::microseconds limit) {
    std::unique_lock<std::mutex> lock(m_);
    (is_send ? sendCv_ : recvCv_).wait_for(lock, limit, [&] {
      return IsComplete(is_send) || ex_ != nullptr;
    });
  }

 private:
  bool IsComplete(bool is_send) const {
    return (is_send ? sendCompletions_ : recvCompletions_) > 0;
  }
};

class TcpTransfer : public Transfer {
 public:
  TcpTransfer(const std::shared_ptr<tcp::Context>& context, void* data, int64_t size_bytes,
              bool is_send)
      : buffer_(context, data, size_bytes), is_send_(is_send) {}

  void Start(int member, uint64_t channel) {
    if (is_send_) {
      buffer_.send(member, channel, 0, buffer_.size);
    } else {
      buffer_.recv(member, channel, 0, buffer_.size);
    }
  }
  absl::StatusOr<bool> Test() override {
    try {
      return buffer_.Test(is_send_);
    } catch (const std::exception& error) {
      return GlooError("connection", error);
    }
  }
  void WaitFor(absl::Duration limit) override {
    buffer_.WaitFor(is_send_, absl::ToChronoMicroseconds(limit));
  }

 private:
  PolledBuffer buffer_;
  const bool is_send_;
};

class TcpLink : public MessageLink {
 public:
  TcpLink(std::shared_ptr<tcp::Context> context, int member)
      : context_(std::move(context)), member_(member) {}

  absl::StatusOr<std::unique_ptr<Transfer>> Send(uint64_t channel, const void* data,
                                                 int64_t size_bytes) override {
    return Launch(channel, const_cast<void*>(data), size_bytes, true);
  }
  absl::StatusOr<std::unique_ptr<Transfer>> Recv(uint64_t channel, void* data,
                                                 int64_t size_bytes) override {
    return Launch(channel, data, size_bytes, false);
  }

 private:
  absl::StatusOr<std::unique_ptr<Transfer>> Launch(uint64_t channel, void* data, int64_t size_bytes,
                                                   bool is_send) {
    try {
      auto transfer = std::make_unique<TcpTransfer>(context_, data, size_bytes, is_send);
      transfer->Start(member_, channel);
      return transfer;
    } catch (const std::exception& error) {
      return GlooError(is_send ? "send" : "receive", error);
    }
  }

  const std::shared_ptr<tcp::Context> context_;
  const int member_;
};

class GlooMesh : public TcpMesh {
 public:
  explicit GlooMesh(std::shared_ptr<tcp::Context> context) : context_(std::move(context)) {}

  absl::StatusOr<std::string> Prepare(int member) override {
    try {
      const std::vector<char> bytes = context_->createPair(member)->address().bytes();
      return std::string(bytes.begin(), bytes.end());
    } catch (const std::exception& error) {
      return GlooError("listening", error);
    }
  }
  absl::StatusOr<std::unique_ptr<MessageLink>> Connect(int member,
                                                       const std::string& address) override {
    try {
      context_->getPair(member)->connect(std::vector<char>(address.begin(), address.end()));
      return std::make_unique<TcpLink>(context_, member);
    } catch (const std::exception& error) {
      return GlooError("connecting", error);
    }
  }

 private:
  const std::shared_ptr<tcp::Context> context_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<TcpDevice>> TcpDevice::Create(const std::string& ip) {
  // Gloo writes to connections whose other end has gone, which by default ends the process.
  struct sigaction current = {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
  try {
    auto device = std::dynamic_pointer_cast<tcp::Device>(tcp::CreateDevice(tcp::attr(ip.c_str())));
    if (device == nullptr) return absl::InternalError("Gloo made a device of another kind");
    return std::make_shared<GlooDevice>(std::move(device));
  } catch (const std::exception& error) {
    return GlooError(absl::StrCat("TCP on ", ip), error);
  }
}

absl::StatusOr<std::unique_ptr<TcpMesh>> TcpMesh::Create(const std::shared_ptr<TcpDevice>& device,
                                                         int group_rank, int group_size) {
  try {
    auto context = std::make_shared<tcp::Context>(static_cast<const GlooDevice&>(*device).device(),
                                                  group_rank, group_size);
    context->setTimeout(kConnectTimeout);
    return std::make_unique<GlooMesh>(std::move(context));
  } catch (const std::exception& error) {
    return GlooError("TCP", error);
  }
}

}  // namespace tessera
