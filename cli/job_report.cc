#include "cli/job_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/render.h"
#include "cli/table.h"

namespace tessera {
namespace {

std::string DifferenceText(const v1::GroupTraffic& traffic) {
  std::vector<std::string> parts;
  if (traffic.calls() != traffic.predicted_calls()) {
    parts.push_back(absl::StrFormat("%+d calls", traffic.calls() - traffic.predicted_calls()));
  }
  if (traffic.bytes() != traffic.predicted_bytes()) {
    parts.push_back(absl::StrFormat("%+d bytes", traffic.bytes() - traffic.predicted_bytes()));
  }
  return parts.empty() ? "equal" : absl::StrJoin(parts, ", ");
}

std::string LayoutText(const v1::TrainingJobSpec& spec) {
  const v1::MeshSpec& mesh = spec.mesh();
  auto size = [](int64_t value) { return std::max<int64_t>(value, 1); };
  const int64_t ranks = size(mesh.dp()) * size(mesh.cp()) * size(mesh.pp()) * size(mesh.tp());
  std::string text = absl::StrCat(MeshText(mesh), " (axes outermost first), ", ranks,
                                  ranks == 1 ? " rank" : " ranks");
  if (mesh.pp() > 1) {
    absl::string_view schedule =
        v1::PipelineSchedule_Name(spec.pipeline_schedule() == v1::PIPELINE_SCHEDULE_UNSPECIFIED
                                      ? v1::PIPELINE_SCHEDULE_1F1B  // the default
                                      : spec.pipeline_schedule());
    absl::ConsumePrefix(&schedule, "PIPELINE_SCHEDULE_");
    absl::StrAppend(&text, ", ", absl::AsciiStrToLower(schedule));
  }
  if (spec.batch().micro_batches() > 1) {
    absl::StrAppend(&text, ", ", spec.batch().micro_batches(), " micro-batches");
  }
  return text;
}

// Relative to one rank's, as the tolerances are.
std::string RelativeDifference(double value, double one_rank) {
  const double difference = std::abs(value - one_rank);
  return absl::StrFormat("%.1e", difference == 0 ? 0 : difference / std::abs(one_rank));
}

std::string StepTable(const v1::VerificationReport& report) {
  Table table({"STEP", "LOSS", "ONE RANK", "DIFFERENCE", "ALLOWED", "GRADIENT NORM", "ONE RANK",
               "DIFFERENCE", "ALLOWED", "RESULT"});
  for (const v1::VerifiedStep& step : report.steps()) {
    table.Add({absl::StrCat(step.step()), absl::StrFormat("%.6f", step.loss()),
               absl::StrFormat("%.6f", step.one_rank_loss()),
               RelativeDifference(step.loss(), step.one_rank_loss()),
               absl::StrFormat("%.1e", step.loss_tolerance()),
               absl::StrFormat("%.6g", step.gradient_norm()),
               absl::StrFormat("%.6g", step.one_rank_gradient_norm()),
               RelativeDifference(step.gradient_norm(), step.one_rank_gradient_norm()),
               absl::StrFormat("%.1e", step.gradient_norm_tolerance()),
               step.passed() ? "ok" : "DIFFERS"});
  }
  return table.ToString();
}

std::string TensorTable(const v1::VerificationReport& report) {
  Table table({"LARGEST DEVIATION", "OF", "DEVIATION", "ALLOWED", "RESULT"});
  for (const v1::VerifiedTensor* tensor :
       {&report.largest_parameter(), &report.largest_gradient()}) {
    if (tensor->name().empty()) continue;
    table.Add({tensor->name(), tensor->kind(), absl::StrFormat("%.1e", tensor->deviation()),
               absl::StrFormat("%.1e", tensor->tolerance()),
               tensor->deviation() <= tensor->tolerance() ? "ok" : "DIFFERS"});
  }
  return table.ToString();
}

std::string Verdict(const v1::VerificationReport& report) {
  if (report.passed()) return "PASSED: the layout computes what one rank does\n";
  std::vector<std::string> steps;
  for (const v1::VerifiedStep& step : report.steps()) {
    if (!step.passed()) steps.push_back(absl::StrCat(step.step()));
  }
  std::string text = "DIFFERS from one rank";
  if (!steps.empty()) {
    absl::StrAppend(&text, steps.size() == 1 ? " in step " : " in steps ",
                    absl::StrJoin(steps, ", "));
  }
  if (report.has_first_beyond()) {
    absl::StrAppend(&text, steps.empty() ? " in " : "; look at ", report.first_beyond().name());
  }
  return text + "\n";
}

}  // namespace

std::string TrafficTable(const v1::JobProgress& progress) {
  if (progress.traffic().empty()) return "";
  Table table(
      {"AXIS", "COLLECTIVE", "CALLS", "BYTES", "PREDICTED CALLS", "PREDICTED BYTES", "RESULT"});
  for (const v1::GroupTraffic& traffic : progress.traffic()) {
    table.Add({traffic.axis(), traffic.kind(), absl::StrCat(traffic.calls()),
               ExactBytes(traffic.bytes()), absl::StrCat(traffic.predicted_calls()),
               ExactBytes(traffic.predicted_bytes()), DifferenceText(traffic)});
  }
  return table.ToString();
}

std::string StepTimeTable(const v1::JobProgress& progress) {
  const v1::StepTime& time = progress.step_time();
  if (time.seconds() <= 0) return "";
  Table table({"PART", "SECONDS", "SHARE"});
  auto add = [&](const char* part, double seconds) {
    table.Add({part, absl::StrFormat("%.4g", seconds),
               absl::StrFormat("%.1f%%", 100 * seconds / time.seconds())});
  };
  add("computation",
      std::max(0.0, time.seconds() - time.communication_seconds() - time.tier_wait_seconds()));
  add("communication", time.communication_seconds());
  add("waiting for tiers", time.tier_wait_seconds());
  add("step", time.seconds());
  return table.ToString();
}

std::string TierTrafficTable(const v1::JobProgress& progress) {
  if (progress.tier_traffic().empty()) return "";
  Table table({"TIER", "READ", "WRITTEN", "LATE READS"});
  for (const v1::TierTraffic& traffic : progress.tier_traffic()) {
    table.Add({traffic.tier(), ExactBytes(traffic.read_bytes()),
               ExactBytes(traffic.written_bytes()), absl::StrCat(traffic.late_reads())});
  }
  return table.ToString();
}

std::string VerificationText(const v1::TrainingJob& job) {
  const v1::VerificationReport& report = job.status().verification();
  std::string first = "none";
  if (report.has_first_beyond()) {
    const v1::VerifiedTensor& tensor = report.first_beyond();
    first = absl::StrFormat("%s (%s): %.1e, allowed %.1e", tensor.name(), tensor.kind(),
                            tensor.deviation(), tensor.tolerance());
  }
  return absl::StrCat("Layout   ", LayoutText(job.spec()),
                      "\nAgainst  one rank with the same model, seeds and data; differences are "
                      "relative\n\n",
                      StepTable(report), "\n", TensorTable(report),
                      "\nFirst tensor beyond its tolerance, in forward order: ", first, "\n",
                      Verdict(report));
}

}  // namespace tessera
