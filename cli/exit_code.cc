#include "cli/exit_code.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

std::string Hint(const absl::Status& status, const std::string& endpoint) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      if (ReasonOf(status) == kConnectionLost) return "the coordinator has gone away; try again";
      if (ReasonOf(status) == kWaitTimedOut) {
        return "`tessera describe job NAME` tells how far it is; --timeout waits longer";
      }
      if (!ReasonOf(status).empty()) {  // the coordinator's own words
        return "`tessera get workers` shows who is attached";
      }
      if (absl::StrContains(status.message(), "Socket closed")) {
        return absl::StrCat(endpoint,
                            " closed the connection: has it stopped, does it use TLS (--cacert), "
                            "or ask for a client's certificate (--cert, --key)?");
      }
      return absl::StrCat("is a coordinator serving at ", endpoint,
                          "? See --endpoint and TESSERA_ENDPOINT, or start one with ./dev up");
    case absl::StatusCode::kResourceExhausted:
      if (absl::StartsWith(ReasonOf(status), "INSUFFICIENT_")) {  // memory of some tier
        return "`tessera plan -f FILE` shows what each stage needs, `tessera get workers -o wide` "
               "what the workers have";
      }
      return "`tessera get workers` shows what the workers hold; try again later";
    case absl::StatusCode::kNotFound:
      if (ReasonOf(status) == "WEIGHTS_NOT_KEPT") {
        return "a worker's --keep-weights keeps more jobs' weights; a job's export keeps its own";
      }
      if (FieldOf(status).has_value() || ReasonOf(status) != "JOB_NOT_FOUND")
        return "check the path";
      return "`tessera get jobs` lists what is there";
    case absl::StatusCode::kAlreadyExists:
      return "choose another --name, or look at it with `tessera describe job NAME`";
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented: {
      const std::optional<std::string> field = FieldOf(status);
      if (!field.has_value() || !absl::StartsWith(*field, "spec.")) {
        return "`tessera --help` shows the usage";
      }
      return absl::StrCat("`tessera explain ", *field, "` tells what the field may be");
    }
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return "use a certificate of another role: --cert, --key";
    case absl::StatusCode::kFailedPrecondition:
      return "`tessera get jobs` shows the states";
    default:
      return "the coordinator's log may tell more";
  }
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kCliOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
      return kCliUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return kCliPrecondition;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return kCliUnavailable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kCliPermission;
    case absl::StatusCode::kCancelled:
      return kCliCancelled;
    default:
      return kCliFailed;
  }
}

std::string ErrorText(const absl::Status& status, const std::string& endpoint) {
  const std::string reason = ReasonOf(status);
  // A value may hold anything; a terminal should see none of it as a command.
  std::string message(status.message());
  for (char& c : message) {
    if (absl::ascii_iscntrl(c) != 0 && c != '\n') c = '?';
  }
  return absl::StrCat("error: ", absl::StatusCodeToString(status.code()),
                      reason.empty() ? "" : absl::StrCat(" (", reason, ")"), ": ", message,
                      "\nhint: ", Hint(status, endpoint), "\n");
}

}  // namespace tessera
