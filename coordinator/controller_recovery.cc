// Controller: state of jobs that outlives the processes of their workers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/job_state.h"
#include "coordinator/recovery_limit.h"
#include "coordinator/spec_layout.h"
#include "proto/rpc/status.h"

namespace tessera {

std::vector<StateHolder> Controller::HoldersLocked(const JobRecord& record) const {
  std::vector<StateHolder> holders;
  for (const v1::RankPlacement& place : record.job.status().placement()) {
    StateHolder& holder = holders.emplace_back();
    holder.worker = place.worker();
    holder.global_rank = place.coordinates().global_rank();
    const auto found = registry_.workers().find(place.worker());
    if (found == registry_.workers().end() || !found->second.attached()) {
      holder.unknown = "is not attached";
      continue;
    }
    const WorkerEntry& worker = found->second;
    if (worker.info.state() == v1::WORKER_STATE_STOPPING) {
      holder.unknown = "is stopping";
    } else if (worker.job_uid == record.job.uid()) {
      holder.unknown = "has not yet stopped";
    } else if (!worker.job_uid.empty()) {
      holder.busy_with = worker.info.training_job();
    }
    const auto saved = worker.saved.find(record.job.uid());
    if (saved == worker.saved.end()) continue;
    holder.damage = saved->second.damage();
    if (saved->second.global_rank() != holder.global_rank) continue;
    holder.steps.assign(saved->second.steps().begin(), saved->second.steps().end());
  }
  return holders;
}

bool Controller::HoldBackLocked(JobRecord& record, std::optional<int64_t> step) {
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  const int recoveries = RecoveriesInARow(status, step.value_or(0));
  status.set_recoveries_in_a_row(recoveries);
  if (status.state() != v1::JOB_STATE_RECOVERING) return false;
  if (recoveries > kMaxRecoveriesInARow) {
    if (step.has_value()) status.set_saved_step(*step);
    TransitionLocked(record, v1::JOB_STATE_SUSPENDED, kRecoveriesExhausted,
                     RecoveriesExhaustedText(status, step));
    return true;
  }
  const absl::Duration pause = RecoveryPause(recoveries);
  if (!record.lost_at.has_value() || clock_->Monotonic() >= *record.lost_at + pause) return false;
  TellWaitingLocked(record, kWaitingToRecover,
                    absl::StrCat("the recovery before committed no step; number ", recoveries,
                                 " of at most ", kMaxRecoveriesInARow, " in a row begins ",
                                 absl::FormatDuration(pause), " after the loss"));
  return true;
}

void Controller::NoteSavedLocked(WorkerEntry& worker, const v1::JobEnded& message) {
  if (message.has_saved()) {
    worker.saved[message.job_uid()] = message.saved();
    worker.saved[message.job_uid()].set_job_uid(message.job_uid());
  } else if (FromProto(message.status()).ok()) {
    worker.saved.erase(message.job_uid());
  }
}

void Controller::SendDiscardLocked(WorkerEntry& worker, const std::string& uid) {
  v1::CoordinatorMessage message;
  message.mutable_discard_state()->set_job_uid(uid);
  worker.session->Send(message);
}

void Controller::DiscardStateLocked(JobRecord& record) {
  SaveShardsLocked(record, {});
  const std::string& uid = record.job.uid();
  const bool commits = OffloadOf(record.job.spec()).commits_steps();
  for (const auto& [name, entry] : registry_.workers()) {
    // One that still runs it says what it holds when it ends.
    if (!entry.attached() || entry.job_uid == uid) continue;
    const bool had_a_rank =
        std::any_of(record.last_ranks.begin(), record.last_ranks.end(),
                    [&](const ActiveJob::Rank& rank) { return rank.worker == entry.info.name(); });
    if (entry.saved.count(uid) == 0 && !(had_a_rank && commits)) continue;
    WorkerEntry& worker = *registry_.Find(name);
    worker.saved.erase(uid);
    SendDiscardLocked(worker, uid);
  }
}

void Controller::DiscardEndedLocked(WorkerEntry& worker) {
  for (auto it = worker.saved.begin(); it != worker.saved.end();) {
    const JobRecord* record = FindUidLocked(it->first);
    if (record == nullptr) {
      // Perhaps another coordinator's.
      log_->Warning("a worker holds state of an unknown job, which is left alone",
                    {{"worker", worker.info.name()}, {"job_uid", it->first}});
    }
    const bool is_over =
        record != nullptr && IsEnded(record->job.status().state()) && worker.job_uid != it->first;
    if (!is_over) {
      ++it;
      continue;
    }
    SendDiscardLocked(worker, it->first);
    it = worker.saved.erase(it);
  }
}

}  // namespace tessera
