#include "cli/follow_job.h"

#include <stdio.h>

#include <optional>

#include "absl/time/time.h"
#include "cli/exit_code.h"
#include "cli/progress.h"
#include "cli/render.h"

namespace tessera {
namespace {

int ExitCodeOf(const v1::TrainingJob& job) {
  switch (job.status().state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return kCliOk;
    case v1::JOB_STATE_CANCELLED:
      return kCliCancelled;
    default:
      return kCliFailed;
  }
}

}  // namespace

FollowedJob FollowJob(const CommandContext& context, JobsClient& client, const std::string& name) {
  std::optional<v1::TrainingJob> last;
  absl::Status status;
  {
    ProgressPrinter printer(StderrIsTerminal());
    status = client.Watch(name, absl::InfiniteFuture(), [&](const v1::TrainingJob& job) {
      printer.Show(job);
      last = job;
      return !IsTerminal(job.status().state());
    });
  }
  if (status.code() == absl::StatusCode::kCancelled) {
    fprintf(stderr, "detached; the job goes on. Attach again: tessera watch %s\n",
            name.substr(name.find('/') + 1).c_str());
    return {kCliInterrupted, {}};
  }
  if (status.ok() && !last.has_value()) status = absl::InternalError("the watch ended early");
  if (!status.ok()) {
    fputs(ErrorText(status, context.connection.endpoint).c_str(), stderr);
    return {ExitCodeOf(status), {}};
  }
  if (last->status().has_error()) {
    fprintf(stderr, "%s: %s\n", StateName(last->status().state()).c_str(),
            last->status().error().message().c_str());
  }
  return {ExitCodeOf(*last), *std::move(last)};
}

}  // namespace tessera
