#include "coordinator/active_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/mesh.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

std::string RankName(const ActiveJob::Rank& rank) {
  return absl::StrCat(rank.worker, " (global_rank ", rank.coordinates.global_rank(), ")");
}

std::string Describe(const v1::PendingCollective& pending) {
  return absl::StrCat("group ", pending.group(), ", ", pending.operation(), " #",
                      pending.sequence(), " of ", pending.size_bytes(), " bytes in step ",
                      pending.step());
}

bool IsMember(const v1::MeshCoordinates& coordinates, const std::string& group) {
  const plan::Coordinates at = {coordinates.global_rank(), coordinates.dp_rank(),
                                coordinates.cp_rank(), coordinates.pp_rank(),
                                coordinates.tp_rank()};
  for (const plan::GroupAxis axis : plan::kGroupAxes) {
    if (plan::GroupName(at, axis) == group) return true;
  }
  return false;
}

// "; group dp[...], all_reduce #7 of 1024 bytes in step 3 was pending on workers/w0 (global_rank
// 0), ...": what the other ranks were waiting for, in a group of the failed rank if one is known,
// or else what the failed one was last known to do.
std::string PendingOf(const std::vector<ActiveJob::Rank>& ranks, const ActiveJob::Rank& failed) {
  const v1::PendingCollective* chosen = nullptr;
  for (const ActiveJob::Rank& rank : ranks) {
    if (&rank == &failed || !rank.pending.has_value()) continue;
    const bool is_waiting_for_failed = IsMember(failed.coordinates, rank.pending->group());
    if (chosen == nullptr || is_waiting_for_failed) chosen = &*rank.pending;
    if (is_waiting_for_failed) break;
  }
  if (chosen != nullptr) {
    const std::string text = Describe(*chosen);
    std::vector<std::string> waiting;
    for (const ActiveJob::Rank& rank : ranks) {
      if (&rank == &failed || !rank.pending.has_value()) continue;
      if (Describe(*rank.pending) == text) waiting.push_back(RankName(rank));
    }
    return absl::StrCat("; ", text, " was pending on ", absl::StrJoin(waiting, ", "));
  }
  if (failed.pending.has_value()) {
    return absl::StrCat("; it was last known to be in ", Describe(*failed.pending));
  }
  return "; no collective was pending";
}

bool IsEcho(const absl::Status& status) {
  // What a rank reports when another rank is the cause.
  return status.code() == absl::StatusCode::kAborted ||
         status.code() == absl::StatusCode::kUnavailable;
}

}  // namespace

ActiveJob::ActiveJob(std::string uid, int64_t epoch,
                     const google::protobuf::RepeatedPtrField<v1::RankPlacement>& placement,
                     bool formed)
    : uid_(std::move(uid)), epoch_(epoch) {
  for (const v1::RankPlacement& place : placement) {
    Rank rank;
    rank.worker = place.worker();
    rank.instance_id = place.instance_id();
    rank.coordinates = place.coordinates();
    rank.formed = formed;
    ranks_.push_back(std::move(rank));
  }
}

ActiveJob::Rank* ActiveJob::FindWorker(const std::string& worker) {
  for (Rank& rank : ranks_) {
    if (rank.worker == worker) return &rank;
  }
  return nullptr;
}

bool ActiveJob::AllFormed() const {
  for (const Rank& rank : ranks_) {
    if (!rank.formed) return false;
  }
  return true;
}

void ActiveJob::Ended(Rank& rank, absl::Status status, absl::Duration now) {
  if (rank.ended.has_value() || rank.lost) return;
  if (!status.ok() && !stopping()) stopping_since_ = now;
  rank.ended = std::move(status);
}

void ActiveJob::Lost(Rank& rank, std::string message, absl::Duration now) {
  if (rank.ended.has_value() || rank.lost) return;
  if (!stopping()) stopping_since_ = now;
  rank.lost = true;
  rank.lost_message = std::move(message);
}

void ActiveJob::Cancel(absl::Duration now) {
  if (stopping()) return;
  stopping_since_ = now;
  cancelled_ = true;
}

std::string ActiveJob::abort_reason() const {
  return cancelled_ ? "the job was cancelled" : Failure().message;
}

std::optional<JobOutcome> ActiveJob::Resolve(absl::Duration now) const {
  std::vector<std::string> silent;
  bool all_ok = true;
  for (const Rank& rank : ranks_) {
    if (!rank.ended.has_value() && !rank.lost) silent.push_back(RankName(rank));
    all_ok = all_ok && rank.ended.has_value() && rank.ended->ok();
  }
  if (all_ok) return JobOutcome{v1::JOB_STATE_SUCCEEDED, "SUCCEEDED", "all steps are done", {}};
  if (!stopping()) return std::nullopt;
  const absl::Duration settle = cancelled_ ? kCancelSettle : kFailureSettle;
  if (!silent.empty() && now - *stopping_since_ < settle) return std::nullopt;

  JobOutcome outcome =
      cancelled_ ? JobOutcome{v1::JOB_STATE_CANCELLED, "CANCELLED", "cancelled on request",
                              WithReason(absl::CancelledError("cancelled on request"), "CANCELLED")}
                 : Failure();
  if (!silent.empty()) {
    absl::StrAppend(&outcome.message, "; not yet stopped: ", absl::StrJoin(silent, ", "));
  }
  return outcome;
}

JobOutcome ActiveJob::Failure() const {
  for (const Rank& rank : ranks_) {
    if (!rank.lost) continue;
    const std::string message =
        absl::StrCat(RankName(rank), " was lost: ", rank.lost_message, PendingOf(ranks_, rank));
    return {v1::JOB_STATE_FAILED, "WORKER_LOST", message,
            WithReason(absl::UnavailableError(message), "WORKER_LOST")};
  }
  // The cause is a rank that failed by itself, not one that only saw another go.
  const Rank* failed = nullptr;
  absl::Status error = absl::InternalError("failed");
  for (const Rank& rank : ranks_) {
    const absl::Status ended = rank.ended.value_or(absl::OkStatus());
    if (ended.ok()) continue;
    if (failed == nullptr || (IsEcho(error) && !IsEcho(ended))) {
      failed = &rank;
      error = ended;
    }
  }
  if (failed == nullptr) return {v1::JOB_STATE_FAILED, "RANK_FAILED", "failed", error};
  const std::string message =
      absl::StrCat(RankName(*failed), " failed: ", error.message(), PendingOf(ranks_, *failed));
  absl::Status named(error.code(), message);  // keeps field and reason
  error.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { named.SetPayload(url, payload); });
  if (ReasonOf(named).empty()) named = WithReason(named, "RANK_FAILED");
  return {v1::JOB_STATE_FAILED, "RANK_FAILED", message, named};
}

}  // namespace tessera
