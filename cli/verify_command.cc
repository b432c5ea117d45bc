// verify: a job's layout against one rank, for a few steps.
#include <stdio.h>

#include <memory>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/follow_job.h"
#include "cli/job_file.h"
#include "cli/job_report.h"
#include "cli/jobs_client.h"
#include "cli/output.h"

namespace tessera {
namespace {

void Print(const CommandContext& context, const v1::TrainingJob& job) {
  switch (context.output) {
    case OutputFormat::kJson:
      fputs(ToJson(job.status().verification()).c_str(), stdout);
      break;
    case OutputFormat::kYaml:
      fputs(ToYaml(job.status().verification()).c_str(), stdout);
      break;
    case OutputFormat::kName:
      printf("%s\n", job.name().c_str());
      break;
    default:
      fputs(VerificationText(job).c_str(), stdout);
  }
}

}  // namespace

int RunVerify(const CommandContext& context, const VerifyOptions& options) {
  auto fail = [&](const absl::Status& status) {
    fputs(ErrorText(status, context.connection.endpoint).c_str(), stderr);
    return ExitCodeOf(status);
  };
  absl::StatusOr<v1::TrainingJobSpec> spec = ReadJobFile(options.file);
  if (!spec.ok()) return fail(spec.status());
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return fail(client.status());
  v1::VerifyTrainingJobRequest request;
  request.set_training_job_id(options.name);
  request.set_request_id(options.request_id);
  request.set_steps(options.steps);
  *request.mutable_spec() = *std::move(spec);
  absl::StatusOr<v1::TrainingJob> job = (*client)->VerifyJob(request);
  if (!job.ok()) return fail(job.status());
  fprintf(stderr, "%s created\n", job->name().c_str());
  const FollowedJob followed = FollowJob(context, **client, job->name());
  if (followed.exit_code == kCliInterrupted) {
    fprintf(stderr, "What it finds: tessera describe job %s\n",
            job->name().substr(job->name().find('/') + 1).c_str());
  }
  if (followed.exit_code != kCliOk) return followed.exit_code;
  if (!followed.job.status().has_verification()) {
    return fail(absl::InternalError(followed.job.name() + ": ended without a report"));
  }
  Print(context, followed.job);
  return followed.job.status().verification().passed() ? kCliOk : kCliFailed;
}

}  // namespace tessera
