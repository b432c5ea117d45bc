#include "cli/exit_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ExitCode, OfEachStatusCode) {
  using Code = absl::StatusCode;
  const std::vector<std::pair<Code, int>> cases = {
      {Code::kOk, 0},
      {Code::kInvalidArgument, 2},
      {Code::kUnimplemented, 2},
      {Code::kOutOfRange, 2},
      {Code::kNotFound, 3},
      {Code::kAlreadyExists, 3},
      {Code::kFailedPrecondition, 3},
      {Code::kUnavailable, 4},
      {Code::kDeadlineExceeded, 4},
      {Code::kResourceExhausted, 4},
      {Code::kPermissionDenied, 5},
      {Code::kUnauthenticated, 5},
      {Code::kCancelled, 6},
      {Code::kInternal, 1},
      {Code::kDataLoss, 1},
  };
  for (const auto& [code, expected] : cases) {
    EXPECT_EQ(ExitCodeOf(absl::Status(code, "x")), expected) << absl::StatusCodeToString(code);
  }
}

TEST(ErrorText, NamesCodeReasonSubjectAndWhatToDo) {
  EXPECT_EQ(ErrorText(WithReason(absl::NotFoundError("trainingJobs/a: there is no such job"),
                                 "JOB_NOT_FOUND"),
                      "here:1"),
            "error: NOT_FOUND (JOB_NOT_FOUND): trainingJobs/a: there is no such job\n"
            "hint: `tessera get jobs` lists what is there\n");
  EXPECT_THAT(ErrorText(InvalidField("spec.steps", "0", "must be at least 1"), "here:1"),
              HasSubstr("hint: `tessera explain spec.steps` tells what the field may be"));
}

TEST(ErrorText, TellsOneUnavailableFromAnother) {
  auto hint = [](const absl::Status& status) { return ErrorText(status, "here:1"); };
  const absl::Status away = absl::UnavailableError("failed to connect");
  EXPECT_THAT(hint(away), HasSubstr("hint: is a coordinator serving at here:1?"));
  EXPECT_THAT(hint(WithReason(away, "WORKER_LOST")), HasSubstr("hint: `tessera get workers`"));
  EXPECT_THAT(hint(WithReason(away, kConnectionLost)), HasSubstr("has gone away; try again"));
  EXPECT_THAT(hint(absl::UnavailableError("Socket closed")), HasSubstr("--cacert"));
  EXPECT_THAT(hint(WithReason(absl::DeadlineExceededError("x"), kWaitTimedOut)),
              HasSubstr("--timeout waits longer"));
}

TEST(ErrorText, TellsWhereToLookForWhatIsShort) {
  for (const char* reason :
       {"INSUFFICIENT_DEVICE_MEMORY", "INSUFFICIENT_HOST_MEMORY", "INSUFFICIENT_NVME_SPACE"}) {
    EXPECT_THAT(ErrorText(WithReason(absl::ResourceExhaustedError("x"), reason), "here:1"),
                HasSubstr("`tessera get workers -o wide`"))
        << reason;
  }
}

// A value may come from anywhere.
TEST(ErrorText, SendsNoCommandToTheTerminal) {
  const std::string text = ErrorText(InvalidField("path", "a\x1b[2Jb\x07", "no"), "here:1");
  EXPECT_THAT(text, HasSubstr("a?[2Jb?"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace tessera
