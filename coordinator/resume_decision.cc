#include "coordinator/resume_decision.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/spec_layout.h"

namespace tessera {
namespace {

constexpr size_t kMostNamed = 4;  // workers in one message

std::string NameOf(const StateHolder& holder) {
  return absl::StrCat(holder.worker, " (global_rank ", holder.global_rank, ")");
}

std::string Joined(const std::vector<std::string>& parts) {
  if (parts.size() <= kMostNamed) return absl::StrJoin(parts, "; ");
  return absl::StrCat(absl::StrJoin(parts.begin(), parts.begin() + kMostNamed, "; "), "; and ",
                      parts.size() - kMostNamed, " more");
}

bool Holds(const StateHolder& holder, int64_t step) {
  return std::find(holder.steps.begin(), holder.steps.end(), step) != holder.steps.end();
}

// Why there is no common step.
std::string Missing(absl::Span<const StateHolder> holders) {
  std::vector<std::string> without, held;
  for (const StateHolder& holder : holders) {
    if (!holder.damage.empty()) {
      without.push_back(absl::StrCat(NameOf(holder), " holds damaged state: ", holder.damage));
    } else if (holder.steps.empty()) {
      without.push_back(absl::StrCat(NameOf(holder), " holds no state of it"));
    } else {
      held.push_back(absl::StrCat(NameOf(holder), " holds that after step ",
                                  absl::StrJoin(holder.steps, " and ")));
    }
  }
  return without.empty() ? absl::StrCat("no step is held by all: ", Joined(held)) : Joined(without);
}

}  // namespace

std::optional<int64_t> LargestCommonStep(absl::Span<const StateHolder> holders) {
  if (holders.empty()) return std::nullopt;
  std::optional<int64_t> common;
  for (const int64_t step : holders[0].steps) {
    const bool all = std::all_of(holders.begin(), holders.end(),
                                 [&](const StateHolder& holder) { return Holds(holder, step); });
    if (all) common = std::max(common.value_or(step), step);
  }
  return common;
}

std::optional<int64_t> KnownCommittedStep(const v1::TrainingJob& job) {
  const v1::TrainingJobStatus& status = job.status();
  int64_t known = std::max(status.saved_step(), status.resume_step());
  if (OffloadOf(job.spec()).commits_steps()) {
    known = std::max(known, status.progress().step() - 1);
  }
  if (known < 1) return std::nullopt;
  return known;
}

ResumeDecision DecideResume(absl::Span<const StateHolder> holders,
                            std::optional<int64_t> saved_step) {
  using Kind = ResumeDecision::Kind;
  std::vector<std::string> unknown, busy;
  int64_t newest = 0;
  bool is_damaged = false;
  for (const StateHolder& holder : holders) {
    if (!holder.unknown.empty()) {
      unknown.push_back(absl::StrCat(NameOf(holder), " ", holder.unknown));
    }
    if (!holder.busy_with.empty()) {
      busy.push_back(absl::StrCat(NameOf(holder), " runs ", holder.busy_with));
    }
    for (const int64_t step : holder.steps) newest = std::max(newest, step);
    is_damaged = is_damaged || !holder.damage.empty();
  }
  if (!unknown.empty()) return {Kind::kWaitForState, 0, Joined(unknown)};
  const std::optional<int64_t> common = LargestCommonStep(holders);
  if (!common.has_value()) {
    if (!saved_step.has_value() && newest <= 1 && !is_damaged) return {Kind::kStartOver, 0, ""};
    return {Kind::kWaitForState, 0, Missing(holders)};
  }
  if (!busy.empty()) return {Kind::kWaitForWorkers, *common, Joined(busy)};
  return {Kind::kResume, *common, ""};
}

}  // namespace tessera
