// Sockets over which members meet: frames of text with file descriptors, deadlines, interruption.
#ifndef TESSERA_WORKER_COMM_SOCKET_H_
#define TESSERA_WORKER_COMM_SOCKET_H_

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// "what: strerror(errno)" as UNAVAILABLE.
absl::Status SocketError(const std::string& what);

// How long a blocking call may take: until `deadline`, or until cancel_fd becomes readable (then
// CANCELLED). cancel_fd -1: never.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  int cancel_fd = -1;
};

// Listens, non-blocking. Unix: the socket appears under `path` only once it accepts connections,
// with mode 0600. TCP: on a free port of `ip`, which *port tells.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path);
absl::StatusOr<UniqueFd> ListenTcp(const std::string& ip, int* port);
// Connects, non-blocking afterwards.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, const Patience& patience);
absl::StatusOr<UniqueFd> ConnectTcp(const std::string& ip, int port, const Patience& patience);

// PERMISSION_DENIED unless the process at the other end of the Unix socket has this one's uid.
absl::Status CheckPeerUid(int fd);

// Sleeps until `fd` has one of `events` (poll). DEADLINE_EXCEEDED, CANCELLED.
absl::Status WaitFor(int fd, short events, const Patience& patience);

// One message: text up to 64 KiB and, on Unix sockets, file descriptors with its first byte.
struct Frame {
  std::string text;
  std::vector<UniqueFd> fds;
};

// UNAVAILABLE where the other end is gone.
absl::Status SendFrame(int fd, const std::string& text, const std::vector<int>& fds,
                       const Patience& patience);
absl::StatusOr<Frame> RecvFrame(int fd, const Patience& patience);

// Collects one frame from a socket without ever blocking.
class FrameReader {
 public:
  // True once the frame is complete, false where more is to come. UNAVAILABLE at end of file.
  absl::StatusOr<bool> Read(int fd);
  Frame Take() { return std::move(frame_); }  // REQUIRES: Read has returned true

 private:
  std::string header_;
  Frame frame_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_SOCKET_H_
