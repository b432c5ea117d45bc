// The address of a CPU transport: what its peers need to reach it. Opaque outside of this folder.
#ifndef TESSERA_WORKER_COMM_ENDPOINT_H_
#define TESSERA_WORKER_COMM_ENDPOINT_H_

#include <string>

#include "absl/status/statusor.h"

namespace tessera {

// As text: "tessera-comm/1 HOST_ID INSTANCE SOCKET IP PORT", fields free of white space.
struct Endpoint {
  std::string host_id;      // equal: memory can be shared
  std::string instance;     // of the transport: 128 random bits, proof that the peer is the member
  std::string socket_name;  // in the socket directory; "-": memory is not shared
  std::string tcp_ip;       // "-": not reachable over TCP
  int tcp_port = 0;

  std::string ToString() const;
  static absl::StatusOr<Endpoint> Parse(const std::string& text);
};

// What must be equal for two processes to share memory: the kernel (boot id), the user namespace
// and uid (peer credentials are checked), and the directory in which they reach each other's
// sockets, by inode, so that containers that mount one directory may share, and others do not claim
// to. label sets hosts apart that are not (tests).
absl::StatusOr<std::string> HostId(const std::string& socket_dir, const std::string& label);

// 32 hexadecimal digits from the system's random source.
absl::StatusOr<std::string> RandomInstance();

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_ENDPOINT_H_
