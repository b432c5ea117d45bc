// What every daemon does around its server: flags with dashes, signals, unique ids.
#ifndef TESSERA_PROTO_DAEMON_PROCESS_H_
#define TESSERA_PROTO_DAEMON_PROCESS_H_

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Exit codes of daemons, for supervisors.
enum ExitCode : int {
  kExitOk = 0,           // after SIGTERM or SIGINT
  kExitUsage = 2,        // bad flags
  kExitState = 3,        // the state folder cannot be used
  kExitDeviceError = 4,  // the device or its data path is beyond repair
};

// argv with the dashes inside flag names made underscores ("--state-dir=x" -> "--state_dir=x"), as
// absl's flags want them. The strings live as long as `storage`.
std::vector<char*> NormalizeFlags(int argc, char** argv, std::vector<std::string>& storage);

// "512MiB", "1.5GiB", "2GB", "1048576". INVALID_ARGUMENT under `flag`.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text, absl::string_view flag);

// Takes a folder for this process, until it ends, by a lock on folder/lock. UNAVAILABLE under
// `flag`: another process has it (which one, where it is known), or the file cannot be written.
absl::Status LockFolder(const std::string& folder, absl::string_view flag);

// gRPC prints what it thinks of every connection; unless GRPC_VERBOSITY says otherwise, only our
// own messages are shown. Call before any other thread.
void QuietGrpc();

// A random UUID (version 4).
std::string NewUuid();

// Blocks SIGTERM and SIGINT in this and all later threads; Wait() returns the one that arrives.
// Construct before any other thread.
class TerminationSignal {
 public:
  TerminationSignal();
  int Wait();

 private:
  sigset_t set_;
};

}  // namespace tessera

#endif  // TESSERA_PROTO_DAEMON_PROCESS_H_
