#include "worker/comm/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr int kBacklog = 256;
constexpr uint32_t kMaxFrameBytes = 64 << 10;
constexpr size_t kMaxFds = 4;

absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " is longer than ",
                                                   sizeof(address.sun_path) - 1, " characters"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// IPv4 or IPv6, numeric.
absl::StatusOr<sockaddr_storage> TcpAddress(const std::string& ip, int port, socklen_t* length) {
  sockaddr_storage storage = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    *length = sizeof(sockaddr_in);
    return storage;
  }
  if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    *length = sizeof(sockaddr_in6);
    return storage;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", ip, "\" is not an IP address"));
}

absl::StatusOr<UniqueFd> Connect(const sockaddr* address, socklen_t length, const std::string& what,
                                 const Patience& patience) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return SocketError("socket");
  if (connect(fd.get(), address, length) == 0) return fd;
  // EAGAIN: the backlog of a Unix socket is full; the caller tries again.
  if (errno != EINPROGRESS) return SocketError(absl::StrCat("connecting to ", what));
  if (absl::Status status = WaitFor(fd.get(), POLLOUT, patience); !status.ok()) return status;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  if (error != 0) return SocketError(absl::StrCat("connecting to ", what));
  return fd;
}

}  // namespace

absl::Status SocketError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

absl::StatusOr<UniqueFd> ListenUnix(const std::string& path) {
  const std::string unready = path + ".new";
  absl::StatusOr<sockaddr_un> address = UnixAddress(unready);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return SocketError("socket");
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&*address), sizeof(*address)) != 0) {
    return SocketError(absl::StrCat("binding ", unready));
  }
  if (chmod(unready.c_str(), 0600) != 0 || listen(fd.get(), kBacklog) != 0 ||
      rename(unready.c_str(), path.c_str()) != 0) {
    const absl::Status status = SocketError(absl::StrCat("listening on ", path));
    unlink(unready.c_str());
    return status;
  }
  return fd;
}

absl::StatusOr<UniqueFd> ListenTcp(const std::string& ip, int* port) {
  socklen_t length = 0;
  absl::StatusOr<sockaddr_storage> address = TcpAddress(ip, 0, &length);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return SocketError("socket");
  auto* generic = reinterpret_cast<sockaddr*>(&*address);
  if (bind(fd.get(), generic, length) != 0 || listen(fd.get(), kBacklog) != 0 ||
      getsockname(fd.get(), generic, &length) != 0) {
    return SocketError(absl::StrCat("listening on ", ip));
  }
  *port =
      ntohs(address->ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(generic)->sin_port
                                          : reinterpret_cast<sockaddr_in6*>(generic)->sin6_port);
  return fd;
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, const Patience& patience) {
  absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status();
  return Connect(reinterpret_cast<sockaddr*>(&*address), sizeof(*address), path, patience);
}

absl::StatusOr<UniqueFd> ConnectTcp(const std::string& ip, int port, const Patience& patience) {
  socklen_t length = 0;
  absl::StatusOr<sockaddr_storage> address = TcpAddress(ip, port, &length);
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> fd = Connect(reinterpret_cast<sockaddr*>(&*address), length,
                                        absl::StrCat(ip, ":", port), patience);
  if (!fd.ok()) return fd;
  const int on = 1;
  setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

absl::Status CheckPeerUid(int fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return SocketError("SO_PEERCRED");
  }
  if (credentials.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("process ", credentials.pid, " of uid ",
                                                  credentials.uid, " is not of uid ", geteuid()));
}

absl::Status WaitFor(int fd, short events, const Patience& patience) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        patience.deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("time-out");
    pollfd polled[2] = {{fd, events, 0}, {patience.cancel_fd, POLLIN, 0}};
    const int ready =
        poll(polled, 2, static_cast<int>(std::min<int64_t>(left.count(), 1000 * 1000)));
    if (ready < 0 && errno != EINTR) return SocketError("poll");
    if (ready <= 0) continue;
    if (polled[1].revents != 0) return absl::CancelledError("interrupted");
    if (polled[0].revents != 0) return absl::OkStatus();
  }
}

absl::Status SendFrame(int fd, const std::string& text, const std::vector<int>& fds,
                       const Patience& patience) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string data(reinterpret_cast<const char*>(&length), sizeof(length));
  data += text;
  for (size_t sent = 0; sent < data.size();) {
    iovec part{data.data() + sent, data.size() - sent};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
    if (sent == 0 && !fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    const ssize_t count = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += count;
    } else if (errno == EAGAIN) {
      if (absl::Status status = WaitFor(fd, POLLOUT, patience); !status.ok()) return status;
    } else if (errno != EINTR) {
      return SocketError("send");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> FrameReader::Read(int fd) {
  while (true) {
    uint32_t length = 0;
    const bool in_header = header_.size() < sizeof(length);
    if (!in_header) std::memcpy(&length, header_.data(), sizeof(length));
    if (length > kMaxFrameBytes) return absl::UnavailableError("not a frame of this protocol");
    char buffer[4096];
    const size_t wanted = in_header ? sizeof(length) - header_.size() : length - frame_.text.size();
    if (!in_header && wanted == 0) return true;
    iovec part{buffer, std::min(wanted, sizeof(buffer))};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t count = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count < 0) return SocketError("receive");
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t number = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < number; ++i) {
        int received;
        std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        frame_.fds.emplace_back(received);
      }
    }
    if (count == 0) return absl::UnavailableError("the connection is closed");
    (in_header ? header_ : frame_.text).append(buffer, count);
  }
}

absl::StatusOr<Frame> RecvFrame(int fd, const Patience& patience) {
  FrameReader reader;
  while (true) {
    absl::StatusOr<bool> complete = reader.Read(fd);
    if (!complete.ok()) return complete.status();
    if (*complete) return reader.Take();
    if (absl::Status status = WaitFor(fd, POLLIN, patience); !status.ok()) return status;
  }
}

}  // namespace tessera
