// plan: what a job's layout, or a model's state, would be, without creating it.
#include <stdio.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/job_file.h"
#include "cli/jobs_client.h"
#include "cli/output.h"
#include "cli/plan_render.h"

namespace tessera {
namespace {

absl::StatusOr<v1::TimelineFormat> FormatOf(const std::string& path) {
  if (path.empty()) return v1::TIMELINE_FORMAT_UNSPECIFIED;
  if (absl::EndsWith(path, ".svg")) return v1::TIMELINE_FORMAT_SVG;
  if (absl::EndsWith(path, ".json")) return v1::TIMELINE_FORMAT_TRACE_EVENTS;
  return absl::InvalidArgumentError(
      absl::StrCat("--timeline: \"", path, "\": must end in .svg or .json"));
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  FILE* file = fopen(path.c_str(), "wb");
  bool written = file != nullptr && fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = written ? 0 : errno;
  if (file != nullptr && fclose(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--timeline: ", path, ": ", strerror(error)));
}

// In the asked format; `table` is made only when it is wanted.
template <typename Message, typename MakeTable>
void Print(const CommandContext& context, const Message& message, const MakeTable& table) {
  switch (context.output) {
    case OutputFormat::kJson:
      fputs(ToJson(message).c_str(), stdout);
      break;
    case OutputFormat::kYaml:
      fputs(ToYaml(message).c_str(), stdout);
      break;
    default:
      fputs(table(context.output == OutputFormat::kWide).c_str(), stdout);
  }
}

absl::Status CheckOutput(const CommandContext& context) {
  if (context.output != OutputFormat::kName) return absl::OkStatus();
  return absl::InvalidArgumentError("-o: plan prints table, wide, json or yaml");
}

}  // namespace

int RunPlanModelState(const CommandContext& context, const ModelStateOptions& options) {
  absl::Status status = CheckOutput(context);
  if (status.ok() && options.parameters.empty()) {
    status = absl::InvalidArgumentError("plan: needs -f FILE or --parameters NUMBER");
  }
  absl::StatusOr<v1::ModelStatePlan> plan =
      status.ok() ? PlanModelState(options) : absl::StatusOr<v1::ModelStatePlan>(status);
  if (!plan.ok()) {
    fputs(ErrorText(plan.status(), context.connection.endpoint).c_str(), stderr);
    return ExitCodeOf(plan.status());
  }
  Print(context, *plan, [&](bool) { return ModelStateTable(*plan); });
  return kCliOk;
}

int RunPlan(const CommandContext& context, const PlanOptions& options) {
  auto fail = [&](const absl::Status& status) {
    fputs(ErrorText(status, context.connection.endpoint).c_str(), stderr);
    return ExitCodeOf(status);
  };
  if (absl::Status status = CheckOutput(context); !status.ok()) return fail(status);
  absl::StatusOr<v1::TimelineFormat> format = FormatOf(options.timeline);
  if (!format.ok()) return fail(format.status());
  absl::StatusOr<v1::TrainingJobSpec> spec = ReadJobFile(options.file);
  if (!spec.ok()) return fail(spec.status());
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return fail(client.status());
  v1::PlanTrainingJobRequest request;
  *request.mutable_spec() = *std::move(spec);
  request.set_timeline(*format);
  absl::StatusOr<v1::PlanTrainingJobResponse> response = (*client)->PlanJob(request);
  if (!response.ok()) return fail(response.status());
  if (!options.timeline.empty()) {
    absl::Status status = WriteFile(options.timeline, response->timeline());
    if (!status.ok()) return fail(status);
    fprintf(stderr, "timeline written to %s\n", options.timeline.c_str());
  }
  const v1::TrainingPlan& plan = response->plan();
  Print(context, plan, [&](bool wide) { return PlanTable(plan, wide); });
  return kCliOk;
}

}  // namespace tessera
