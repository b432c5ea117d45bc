// Controller: jobs that are asked to make room, and to go on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/job_state.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

// Of a cancelled job's ranks some may still be stopping.
absl::Status CheckGoesOn(const v1::TrainingJob& job) {
  const v1::TrainingJobStatus& status = job.status();
  const std::string state = v1::JobState_Name(status.state());
  std::string why;
  if (status.cancel_requested()) why = "is being cancelled";
  if (IsEnded(status.state())) why = absl::StrCat("is ", state.substr(state.rfind('_') + 1));
  if (why.empty()) return absl::OkStatus();
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(job.name(), ": ", why, ": must not have ended")),
      "JOB_ENDED");
}

absl::Status CheckMaySuspend(const v1::TrainingJob& job) {
  if (absl::Status status = CheckGoesOn(job); !status.ok()) return status;
  if (!job.spec().has_verification()) return absl::OkStatus();
  return WithReason(absl::FailedPreconditionError(
                        absl::StrCat(job.name(), ": is a verification, which cannot be suspended")),
                    "JOB_IS_VERIFICATION");
}

// What a job goes on from.
std::string GoesOnText(const v1::TrainingJobStatus& status) {
  if (!AwaitsState(status)) return "starts from the beginning, on any workers";
  if (!status.has_saved_step()) return "goes on from what its workers have committed";
  return absl::StrCat("goes on after step ", status.saved_step(), ", on the workers that have it");
}

}  // namespace

absl::StatusOr<v1::TrainingJob> Controller::SuspendJob(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<JobRecord*> found = FindJobLocked(name, "name");
  if (!found.ok()) return found.status();
  JobRecord& record = **found;
  if (absl::Status status = CheckMaySuspend(record.job); !status.ok()) return status;
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  const bool is_new = !status.suspend_requested();
  switch (status.state()) {
    case v1::JOB_STATE_PENDING:
    case v1::JOB_STATE_RECOVERING: {
      status.set_suspend_requested(true);
      TransitionLocked(record, v1::JOB_STATE_SUSPENDED, kSuspended,
                       absl::StrCat("on request, while it waited; ", GoesOnText(status)));
      const v1::TrainingJob answer = record.job;
      ScheduleLocked();  // it may have held up others
      return answer;
    }
    case v1::JOB_STATE_RUNNING:
      status.set_suspend_requested(true);
      BeginSuspendLocked(record, "SUSPEND_REQUESTED", "suspended on request");
      break;
    case v1::JOB_STATE_ADMITTED:    // once it is RUNNING
    case v1::JOB_STATE_SUSPENDING:  // it then stays SUSPENDED
      if (!is_new) break;
      status.set_suspend_requested(true);
      SaveLocked(record, Durability::kSynced);
      break;
    default:  // it is SUSPENDED
      break;
  }
  return record.job;
}

absl::StatusOr<v1::TrainingJob> Controller::ResumeJob(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<JobRecord*> found = FindJobLocked(name, "name");
  if (!found.ok()) return found.status();
  JobRecord& record = **found;
  if (absl::Status status = CheckGoesOn(record.job); !status.ok()) return status;
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  const bool was_requested = status.suspend_requested();
  status.set_suspend_requested(false);
  if (status.state() == v1::JOB_STATE_SUSPENDED) {
    status.set_recoveries_in_a_row(0);
    TransitionLocked(record, v1::JOB_STATE_PENDING, "RESUMED", GoesOnText(status));
    const v1::TrainingJob answer = record.job;
    ScheduleLocked();
    return answer;
  }
  // SUSPENDING: it is PENDING again as soon as it is suspended.
  if (was_requested) SaveLocked(record, Durability::kSynced);
  return record.job;
}

void Controller::BeginSuspendLocked(JobRecord& record, const std::string& reason,
                                    const std::string& message) {
  TransitionLocked(record, v1::JOB_STATE_SUSPENDING, reason, message);
  for (const ActiveJob::Rank& rank : record.active->ranks()) SendSuspendLocked(record, rank);
}

void Controller::SendSuspendLocked(const JobRecord& record, const ActiveJob::Rank& rank) {
  if (rank.ended.has_value() || rank.lost || record.active->stopping()) return;
  WorkerEntry* worker = registry_.Find(rank.worker);
  if (worker == nullptr || !worker->attached() || worker->job_uid != record.job.uid()) return;
  v1::CoordinatorMessage message;
  message.mutable_suspend()->set_job_uid(record.job.uid());
  message.mutable_suspend()->set_epoch(record.active->epoch());
  worker->session->Send(message);
}

void Controller::HandleSuspendFailedLocked(WorkerEntry& worker, const v1::SuspendFailed& message) {
  JobRecord* record = FindUidLocked(message.job_uid());
  if (record == nullptr || record->active == nullptr ||
      record->active->epoch() != message.epoch() || record->active->stopping() ||
      record->job.status().state() != v1::JOB_STATE_SUSPENDING) {
    return;  // of a past run, or the second rank that says so
  }
  const ActiveJob::Rank* rank = record->active->FindWorker(worker.info.name());
  if (rank == nullptr || rank->ended.has_value()) return;
  record->job.mutable_status()->set_suspend_requested(false);
  TransitionLocked(*record, v1::JOB_STATE_RUNNING, kSuspendFailed,
                   absl::StrCat(rank->worker, " (global_rank ", rank->coordinates.global_rank(),
                                ") could not save its state: ",
                                FromProto(message.status()).message(), "; training goes on"));
}

void Controller::NoteUnsavedLocked(const JobRecord& record, JobOutcome& outcome) {
  const bool was_being_suspended = record.job.status().state() == v1::JOB_STATE_SUSPENDING;
  if (!was_being_suspended || outcome.state != v1::JOB_STATE_FAILED) return;
  if (outcome.reason != kWorkerLost) return;
  absl::StrAppend(
      &outcome.message,
      "; it was being suspended, and not all ranks are known to have saved their state");
  outcome.error = WithReason(absl::UnavailableError(outcome.message), kWorkerLost);
}

void Controller::PrepareToGoOnLocked(JobRecord& record, JobOutcome& outcome) {
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  status.mutable_progress()->clear_seconds_left();
  record.speed_origin.reset();
  if (outcome.state == v1::JOB_STATE_RECOVERING) {
    // Before the first step there is nothing to go on from.
    if (status.state() == v1::JOB_STATE_ADMITTED && !status.has_saved_step()) {
      status.clear_placement();
      status.clear_memory();
    }
    record.reserved_until = clock_->Monotonic() + options_.restart_grace;
    record.lost_at = clock_->Monotonic();
    const auto& ranks = record.active->ranks();
    const bool is_on_purpose =
        std::any_of(ranks.begin(), ranks.end(),
                    [](const ActiveJob::Rank& rank) { return rank.was_asked_to_stop; });
    if (!is_on_purpose) status.set_recoveries_in_a_row(status.recoveries_in_a_row() + 1);
    if (status.suspend_requested()) outcome.state = v1::JOB_STATE_SUSPENDED;
    return;
  }
  std::optional<int64_t> step = outcome.suspended_step;
  if (!step.has_value()) step = LargestCommonStep(HoldersLocked(record));
  if (step.has_value()) {
    status.set_saved_step(*step);
    if (status.progress().step() < *step) status.mutable_progress()->set_step(*step);
  }
  if (outcome.reason == kTierFailed) return;  // until a person has mended the disk
  if (status.state() != v1::JOB_STATE_SUSPENDING || status.suspend_requested()) {
    status.set_suspend_requested(true);
    return;
  }
  outcome.state = v1::JOB_STATE_PENDING;
  const v1::JobCondition* asked = nullptr;
  for (const v1::JobCondition& condition : status.conditions()) {
    if (condition.state() == v1::JOB_STATE_SUSPENDING) asked = &condition;
  }
  const bool is_preempted = asked != nullptr && asked->reason() == kPreempted;
  outcome.reason = is_preempted ? kPreempted : "RESUMED";
  absl::StrAppend(&outcome.message, "; ", is_preempted ? asked->message() : "resumed meanwhile");
}

}  // namespace tessera
