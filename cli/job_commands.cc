// create, get, describe, watch, cancel, suspend, resume, wait.
#include <stdio.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/follow_job.h"
#include "cli/job_file.h"
#include "cli/jobs_client.h"
#include "cli/output.h"
#include "cli/render.h"

namespace tessera {
namespace {

int Fail(const CommandContext& context, const absl::Status& status) {
  fputs(ErrorText(status, context.connection.endpoint).c_str(), stderr);
  return ExitCodeOf(status);
}

// One resource in the asked format; `table` is made only when it is wanted.
template <typename Message, typename MakeTable>
void Print(const CommandContext& context, const Message& message, const std::string& name,
           const MakeTable& table) {
  switch (context.output) {
    case OutputFormat::kJson:
      fputs(ToJson(message).c_str(), stdout);
      break;
    case OutputFormat::kYaml:
      fputs(ToYaml(message).c_str(), stdout);
      break;
    case OutputFormat::kName:
      if (!name.empty()) printf("%s\n", name.c_str());
      break;
    default:
      fputs(table(context.output == OutputFormat::kWide).c_str(), stdout);
  }
}

// Asks for something that is acknowledged at once and done later. answer: what to say of the job.
int RunRequest(const CommandContext& context,
               const std::function<absl::StatusOr<v1::TrainingJob>(JobsClient&)>& request,
               std::string (*answer)(const v1::TrainingJob&)) {
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return Fail(context, client.status());
  absl::StatusOr<v1::TrainingJob> job = request(**client);
  if (!job.ok()) return Fail(context, job.status());
  Print(context, *job, job->name(), [&](bool) { return answer(*job); });
  return kCliOk;
}

}  // namespace

int RunCreate(const CommandContext& context, const CreateOptions& options) {
  absl::StatusOr<v1::TrainingJobSpec> spec = ReadJobFile(options.file);
  if (!spec.ok()) return Fail(context, spec.status());
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return Fail(context, client.status());
  v1::CreateTrainingJobRequest request;
  request.set_training_job_id(options.name);
  request.set_request_id(options.request_id);
  request.set_validate_only(options.validate_only);
  *request.mutable_training_job()->mutable_spec() = *std::move(spec);
  absl::StatusOr<v1::TrainingJob> job = (*client)->CreateJob(request);
  if (!job.ok()) return Fail(context, job.status());
  Print(context, *job, job->name(), [&](bool) {
    return absl::StrCat(job->name(), options.validate_only ? " is valid\n" : " created\n");
  });
  if (!options.watch || options.validate_only) return kCliOk;
  fflush(stdout);
  return FollowJob(context, **client, job->name()).exit_code;
}

int RunGet(const CommandContext& context, const GetOptions& options) {
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return Fail(context, client.status());
  if ((options.kind == "jobs" || options.kind == "job") && !options.name.empty()) {
    absl::StatusOr<v1::TrainingJob> job = (*client)->GetJob(options.name);
    if (!job.ok()) return Fail(context, job.status());
    Print(context, *job, job->name(), [&](bool wide) { return JobTable({*job}, wide); });
  } else if (options.kind == "jobs" || options.kind == "job") {
    absl::StatusOr<std::vector<v1::TrainingJob>> jobs = (*client)->ListJobs();
    if (!jobs.ok()) return Fail(context, jobs.status());
    v1::ListTrainingJobsResponse all;
    std::string names;
    for (const v1::TrainingJob& job : *jobs) {
      *all.add_training_jobs() = job;
      absl::StrAppend(&names, names.empty() ? "" : "\n", job.name());
    }
    Print(context, all, names, [&](bool wide) { return JobTable(*jobs, wide); });
  } else if (options.kind == "workers") {
    absl::StatusOr<std::vector<v1::Worker>> workers = (*client)->ListWorkers();
    if (!workers.ok()) return Fail(context, workers.status());
    v1::ListWorkersResponse all;
    std::string names;
    for (const v1::Worker& worker : *workers) {
      *all.add_workers() = worker;
      absl::StrAppend(&names, names.empty() ? "" : "\n", worker.name());
    }
    Print(context, all, names, [&](bool wide) { return WorkerTable(*workers, wide); });
  } else {
    absl::StatusOr<v1::Placement> placement = (*client)->GetPlacement(options.name);
    if (!placement.ok()) return Fail(context, placement.status());
    Print(context, *placement, placement->training_job(),
          [&](bool wide) { return PlacementTable(*placement, wide); });
  }
  return kCliOk;
}

int RunDescribe(const CommandContext& context, const std::string& name) {
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return Fail(context, client.status());
  absl::StatusOr<v1::TrainingJob> job = (*client)->GetJob(name);
  if (!job.ok()) return Fail(context, job.status());
  Print(context, *job, job->name(), [&](bool wide) { return DescribeJob(*job, wide); });
  return kCliOk;
}

int RunWatch(const CommandContext& context, const std::string& name) {
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return Fail(context, client.status());
  return FollowJob(context, **client, FullJobName(name)).exit_code;
}

int RunCancel(const CommandContext& context, const std::string& name) {
  return RunRequest(
      context, [&](JobsClient& client) { return client.CancelJob(name); }, CancelAnswer);
}

int RunSuspend(const CommandContext& context, const std::string& name) {
  return RunRequest(
      context, [&](JobsClient& client) { return client.SuspendJob(name); }, SuspendAnswer);
}

int RunResume(const CommandContext& context, const std::string& name) {
  return RunRequest(
      context, [&](JobsClient& client) { return client.ResumeJob(name); }, ResumeAnswer);
}

int RunWait(const CommandContext& context, const WaitOptions& options) {
  absl::string_view wanted_name = options.condition;
  v1::JobState wanted = v1::JOB_STATE_UNSPECIFIED;
  if (!absl::ConsumePrefix(&wanted_name, "state=") ||
      !v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(wanted_name)),
                          &wanted)) {
    return Fail(context, absl::InvalidArgumentError(
                             absl::StrCat("--for: \"", options.condition,
                                          "\": must be state=STATE, such as state=SUCCEEDED")));
  }
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return Fail(context, client.status());
  std::optional<v1::TrainingJob> last;
  const absl::Status status = (*client)->Watch(
      options.name, absl::Now() + options.timeout, [&](const v1::TrainingJob& job) {
        last = job;
        return job.status().state() != wanted && !IsTerminal(job.status().state());
      });
  if (status.code() == absl::StatusCode::kCancelled) return kCliInterrupted;
  if (!status.ok()) return Fail(context, status);
  if (!last.has_value()) return Fail(context, absl::InternalError("the watch ended early"));
  const v1::TrainingJobStatus& ended = last->status();
  if (ended.state() == wanted) {
    printf("%s is %s\n", last->name().c_str(), StateName(wanted).c_str());
    return kCliOk;
  }
  fprintf(stderr, "condition %s can no longer be met: the job is %s%s%s\n",
          options.condition.c_str(), StateName(ended.state()).c_str(),
          ended.has_error() ? ": " : "", ended.error().message().c_str());
  return kCliFailed;
}

}  // namespace tessera
