// The directory in which the processes of a host find each other's sockets.
#ifndef TESSERA_WORKER_COMM_SOCKET_DIR_H_
#define TESSERA_WORKER_COMM_SOCKET_DIR_H_

#include <string>

#include "absl/status/status.h"

namespace tessera {

// Creates `path` (one level) with mode 0700, or checks that it is a directory of this user that
// nobody else can enter; then removes the sockets of processes that are gone. INVALID_ARGUMENT.
absl::Status PrepareSocketDir(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_SOCKET_DIR_H_
