// What the process tells its caller.
#ifndef TESSERA_CLI_EXIT_CODE_H_
#define TESSERA_CLI_EXIT_CODE_H_

#include <string>

#include "absl/status/status.h"

namespace tessera {

// Reason of DEADLINE_EXCEEDED where a condition was waited for, not an answer.
inline constexpr char kWaitTimedOut[] = "WAIT_TIMED_OUT";
// Reason of UNAVAILABLE where an answer had begun.
inline constexpr char kConnectionLost[] = "CONNECTION_LOST";

inline constexpr int kCliOk = 0;
inline constexpr int kCliFailed = 1;        // the job failed, or the condition is false
inline constexpr int kCliUsage = 2;         // bad arguments or a bad job file
inline constexpr int kCliPrecondition = 3;  // not found, exists, or not in the right state
inline constexpr int kCliUnavailable = 4;   // no connection, no room, or timed out
inline constexpr int kCliPermission = 5;
inline constexpr int kCliCancelled = 6;  // the job was cancelled
inline constexpr int kCliInterrupted = 130;

int ExitCodeOf(const absl::Status& status);

// "error: CODE (REASON): message\nhint: the next thing to do\n"
std::string ErrorText(const absl::Status& status, const std::string& endpoint);

}  // namespace tessera

#endif  // TESSERA_CLI_EXIT_CODE_H_
