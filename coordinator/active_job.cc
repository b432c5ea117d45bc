#include "coordinator/active_job.h"

#include <algorithm>
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

JobOutcome Suspended(int64_t step, const std::string& message) {
  return {.state = v1::JOB_STATE_SUSPENDED,
          .reason = kSuspended,
          .message = message,
          .error = {},
          .suspended_step = step};
}

JobOutcome Failed(absl::string_view reason, const std::string& message, absl::Status error) {
  return {.state = v1::JOB_STATE_FAILED,
          .reason = std::string(reason),
          .message = message,
          .error = std::move(error),
          .suspended_step = {}};
}

bool IsEcho(const absl::Status& status) {
  // What a rank reports when another rank is the cause.
  if (ReasonOf(status) == kTierFailed) return false;
  return status.code() == absl::StatusCode::kAborted ||
         status.code() == absl::StatusCode::kUnavailable;
}

}  // namespace

JobOutcome CancelledOutcome() {
  return {.state = v1::JOB_STATE_CANCELLED,
          .reason = "CANCELLED",
          .message = "cancelled on request",
          .error = WithReason(absl::CancelledError("cancelled on request"), "CANCELLED"),
          .suspended_step = {}};
}

ActiveJob::ActiveJob(std::string uid, int64_t epoch,
                     const google::protobuf::RepeatedPtrField<v1::RankPlacement>& placement,
                     bool formed, bool is_recoverable)
    : uid_(std::move(uid)), epoch_(epoch), is_recoverable_(is_recoverable) {
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

v1::JobShards ActiveJob::Shards() const {
  v1::JobShards shards;
  for (const Rank& rank : ranks_) {
    shards.add_ranks()->mutable_shards()->Assign(rank.shards.begin(), rank.shards.end());
  }
  return shards;
}

void ActiveJob::RestoreShards(const v1::JobShards& shards) {
  const size_t known = std::min<size_t>(ranks_.size(), shards.ranks_size());
  for (size_t rank = 0; rank < known; ++rank) {
    const auto& of_rank = shards.ranks(static_cast<int>(rank)).shards();
    ranks_[rank].shards.assign(of_rank.begin(), of_rank.end());
  }
}

void ActiveJob::Ended(Rank& rank, absl::Status status, absl::Duration now,
                      std::optional<int64_t> suspended_step) {
  if (rank.ended.has_value() || rank.lost) return;
  if (!status.ok() && !stopping()) stopping_since_ = now;
  if (status.ok()) rank.suspended_step = suspended_step;
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
  if (all_ok) return WellEnded();
  if (!stopping()) return std::nullopt;
  const absl::Duration settle = cancelled_ ? kCancelSettle : kFailureSettle;
  if (!silent.empty() && now - *stopping_since_ < settle) return std::nullopt;

  JobOutcome outcome = cancelled_ ? CancelledOutcome() : Failure();
  if (!silent.empty()) {
    absl::StrAppend(&outcome.message, "; not yet stopped: ", absl::StrJoin(silent, ", "));
  }
  return outcome;
}

JobOutcome ActiveJob::WellEnded() const {
  std::vector<std::string> steps;
  bool is_any_suspended = false, all_agree = true;
  for (const Rank& rank : ranks_) {
    is_any_suspended = is_any_suspended || rank.suspended_step.has_value();
    all_agree = all_agree && rank.suspended_step == ranks_[0].suspended_step;
    steps.push_back(
        absl::StrCat(RankName(rank), rank.suspended_step.has_value()
                                         ? absl::StrCat(" after step ", *rank.suspended_step)
                                         : " at the end"));
  }
  if (!is_any_suspended) {
    return {.state = v1::JOB_STATE_SUCCEEDED,
            .reason = "SUCCEEDED",
            .message = "all steps are done",
            .error = {},
            .suspended_step = {}};
  }
  if (!all_agree) {
    const std::string message =
        absl::StrCat("the ranks were suspended at different steps: ", absl::StrJoin(steps, ", "));
    return Failed("RANK_FAILED", message, WithReason(absl::InternalError(message), "RANK_FAILED"));
  }
  if (cancelled_) return CancelledOutcome();
  return Suspended(*ranks_[0].suspended_step,
                   absl::StrCat("after step ", *ranks_[0].suspended_step,
                                "; its state is on the nvme tiers of its workers"));
}

std::optional<int64_t> ActiveJob::CommittedByAll() const {
  std::optional<int64_t> step;
  for (const Rank& rank : ranks_) {
    if (rank.suspended_step.has_value()) {
      if (step.has_value() && step != rank.suspended_step) return std::nullopt;
      step = rank.suspended_step;
    } else if (rank.ended.has_value() && !IsEcho(*rank.ended)) {
      return std::nullopt;
    }
  }
  return step;
}

JobOutcome ActiveJob::Failure() const {
  const std::optional<int64_t> committed = CommittedByAll();
  for (const Rank& rank : ranks_) {
    // One that does not get to say that it stops is lost as well.
    const bool is_stopping = is_recoverable_ && rank.was_asked_to_stop && !rank.ended.has_value();
    if (!rank.lost && !is_stopping) continue;
    const std::string message = absl::StrCat(
        RankName(rank), " was lost: ", rank.lost ? rank.lost_message : "its worker stops",
        PendingOf(ranks_, rank));
    if (committed.has_value()) {
      return Suspended(*committed, absl::StrCat("after step ", *committed, "; then ", message));
    }
    if (is_recoverable_) {
      return {.state = v1::JOB_STATE_RECOVERING,
              .reason = kWorkerLost,
              .message = message,
              .error = {},
              .suspended_step = {}};
    }
    return Failed(kWorkerLost, message, WithReason(absl::UnavailableError(message), kWorkerLost));
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
  if (failed == nullptr) return Failed("RANK_FAILED", "failed", error);
  const std::string message =
      absl::StrCat(RankName(*failed), " failed: ", error.message(), PendingOf(ranks_, *failed));
  if (is_recoverable_ && ReasonOf(error) == kTierFailed) {
    return {.state = v1::JOB_STATE_SUSPENDED,
            .reason = kTierFailed,
            .message = message,
            .error = {},
            .suspended_step = {}};
  }
  absl::Status named(error.code(), message);  // keeps field and reason
  error.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { named.SetPayload(url, payload); });
  if (ReasonOf(named).empty()) named = WithReason(named, "RANK_FAILED");
  return Failed("RANK_FAILED", message, named);
}

}  // namespace tessera
