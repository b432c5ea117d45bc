// Message links over TCP: Gloo's unbound buffers, without its rendezvous and its time-outs.
#ifndef TESSERA_WORKER_COMM_TCP_MESH_H_
#define TESSERA_WORKER_COMM_TCP_MESH_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/message_link.h"

namespace tessera {

// The thread that does all TCP work of a transport. Thread-safe.
class TcpDevice {
 public:
  // ip: numeric address of this host to listen on. UNAVAILABLE where it cannot be bound. Makes the
  // process ignore SIGPIPE, unless it already handles it.
  static absl::StatusOr<std::shared_ptr<TcpDevice>> Create(const std::string& ip);
  virtual ~TcpDevice() = default;
};

// The connections of one group's member to those members that it reaches over TCP. Used by one
// thread. Connections go with the mesh and its links.
class TcpMesh {
 public:
  static absl::StatusOr<std::unique_ptr<TcpMesh>> Create(const std::shared_ptr<TcpDevice>& device,
                                                         int group_rank, int group_size);
  virtual ~TcpMesh() = default;

  // Where this member waits for that one: bytes to be handed to it.
  virtual absl::StatusOr<std::string> Prepare(int member) = 0;
  // Connects to the member that prepared `address` for this one. Blocks until it does the same, for
  // some seconds at most; all members go in ascending order. UNAVAILABLE.
  virtual absl::StatusOr<std::unique_ptr<MessageLink>> Connect(int member,
                                                               const std::string& address) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_TCP_MESH_H_
