#include "coordinator/controller.h"

#include <google/protobuf/util/time_util.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/job_state.h"
#include "coordinator/spec_layout.h"
#include "proto/daemon/process.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/resource_name.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

constexpr size_t kEventLogCapacity = 1024;
// A job that is suspended and resumed, or loses workers, again and again keeps the first and the
// last ones.
constexpr int kMaxConditions = 256;

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  return google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(time));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(ControllerOptions options,
                                                               KeyValueStore* store,
                                                               const Clock* clock, Logger* log) {
  std::unique_ptr<Controller> controller(new Controller(std::move(options), clock, log));
  absl::Status status = controller->Load(store);
  if (!status.ok()) return status;
  return controller;
}

Controller::Controller(ControllerOptions options, const Clock* clock, Logger* log)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      registry_(options_.lease),
      instance_id_(NewUuid()),
      restart_deadline_(clock->Monotonic() + options_.restart_grace) {}

absl::Status Controller::Load(KeyValueStore* store) {
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(store);
  if (!journal.ok()) return journal.status();
  std::lock_guard<std::mutex> lock(mutex_);
  journal_ = *std::move(journal);
  absl::StatusOr<std::vector<v1::TrainingJob>> jobs = journal_->LoadJobs();
  if (!jobs.ok()) return jobs.status();
  events_ = std::make_unique<EventLog>(kEventLogCapacity, journal_->last_revision());
  for (v1::TrainingJob& job : *jobs) {
    absl::StatusOr<v1::JobShards> shards = journal_->LoadShards(job);
    if (!shards.ok()) return shards.status();
    JobRecord& record = AddLocked(std::move(job));
    record.shards = *std::move(shards);
    const v1::TrainingJobStatus& status = record.job.status();
    record.reserved_until = restart_deadline_;
    if (status.state() == v1::JOB_STATE_RUNNING || status.state() == v1::JOB_STATE_SUSPENDING) {
      record.active = std::make_unique<ActiveJob>(record.job.uid(), status.epoch(),
                                                  status.placement(), /*formed=*/true,
                                                  OffloadOf(record.job.spec()).commits_steps());
      record.active->RestoreShards(record.shards);
      if (status.cancel_requested()) record.active->Cancel(clock_->Monotonic());
      log_->Info("waiting for the workers of a running job", {{"job", record.job.name()}});
    } else if (status.state() == v1::JOB_STATE_ADMITTED) {
      // Whether the assignments were sent is not known. A new epoch makes that not matter.
      if (!status.has_saved_step()) {
        record.job.mutable_status()->clear_placement();
        record.job.mutable_status()->clear_memory();
      }
      v1::JobState state = v1::JOB_STATE_PENDING;
      if (status.suspend_requested()) state = v1::JOB_STATE_SUSPENDED;
      if (status.cancel_requested()) state = v1::JOB_STATE_CANCELLED;
      TransitionLocked(record, state, "COORDINATOR_RESTARTED",
                       "restarted before the groups were formed");
    }
  }
  for (auto& [name, record] : jobs_) {
    // A crash came between its end and this.
    const bool is_stale = IsEnded(record.job.status().state()) && record.shards.ranks_size() > 0;
    if (is_stale) SaveShardsLocked(record, {});
  }
  log_->Info("journal loaded", {{"jobs", jobs_.size()}, {"revision", journal_->last_revision()}});
  return absl::OkStatus();
}

Controller::JobRecord& Controller::AddLocked(v1::TrainingJob job) {
  JobRecord& record = jobs_[job.name()];
  record.job = std::move(job);
  by_uid_[record.job.uid()] = &record;
  return record;
}

absl::StatusOr<Controller::JobRecord*> Controller::FindJobLocked(const std::string& name,
                                                                 const char* field) {
  absl::StatusOr<const JobRecord*> record = std::as_const(*this).FindJobLocked(name, field);
  if (!record.ok()) return record.status();
  return &jobs_.find(name)->second;
}

absl::StatusOr<const Controller::JobRecord*> Controller::FindJobLocked(const std::string& name,
                                                                       const char* field) const {
  absl::StatusOr<std::string> id = JobId(name, field);
  if (!id.ok()) return id.status();
  auto it = jobs_.find(name);
  if (it != jobs_.end()) return &it->second;
  return WithReason(absl::NotFoundError(absl::StrCat(name, ": there is no such job")),
                    "JOB_NOT_FOUND");
}

Controller::JobRecord* Controller::FindUidLocked(const std::string& uid) {
  auto it = by_uid_.find(uid);
  return it == by_uid_.end() ? nullptr : it->second;
}

void Controller::TransitionLocked(JobRecord& record, v1::JobState state, const std::string& reason,
                                  const std::string& message) {
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  status.set_state(state);
  if (status.conditions_size() >= kMaxConditions) {
    status.mutable_conditions()->DeleteSubrange(1, status.conditions_size() + 1 - kMaxConditions);
  }
  v1::JobCondition& condition = *status.add_conditions();
  condition.set_state(state);
  condition.set_reason(reason);
  condition.set_message(message);
  *condition.mutable_transition_time() = ToTimestamp(clock_->Now());
  SaveLocked(record, Durability::kSynced);
  log_->Info("job transition", {{"job", record.job.name()},
                                {"state", v1::JobState_Name(state)},
                                {"reason", reason},
                                {"epoch", status.epoch()},
                                {"message", message}});
}

void Controller::SaveLocked(JobRecord& record, Durability durability) {
  absl::StatusOr<int64_t> revision = journal_->NextRevision();
  absl::Status status = revision.status();
  if (status.ok()) {
    record.job.mutable_status()->set_revision(*revision);
    status = journal_->Update(record.job, durability);
  }
  if (!status.ok()) {
    options_.on_fatal(status);
    return;
  }
  record.progress_dirty = false;
  record.progress_published = clock_->Monotonic();
  events_->Append({*revision, std::make_shared<v1::TrainingJob>(record.job)});
}

void Controller::SaveShardsLocked(JobRecord& record, v1::JobShards shards) {
  record.shards = std::move(shards);
  const absl::Status status = journal_->UpdateShards(record.job, record.shards);
  if (!status.ok()) options_.on_fatal(status);
}

void Controller::SendAbortLocked(WorkerEntry& worker, const std::string& uid, int64_t epoch,
                                 const std::string& reason) {
  v1::CoordinatorMessage message;
  message.mutable_abort()->set_job_uid(uid);
  message.mutable_abort()->set_epoch(epoch);
  message.mutable_abort()->set_reason(reason);
  if (worker.attached()) worker.session->Send(message);
}

void Controller::AbortRanksLocked(JobRecord& record) {
  const std::string reason = record.active->abort_reason();
  for (const ActiveJob::Rank& rank : record.active->ranks()) {
    if (rank.ended.has_value() || rank.lost) continue;
    WorkerEntry* worker = registry_.Find(rank.worker);
    if (worker != nullptr && worker->job_uid == record.job.uid()) {
      SendAbortLocked(*worker, record.job.uid(), record.active->epoch(), reason);
    }
  }
}

void Controller::SettleLocked(JobRecord& record) {
  if (record.active == nullptr) return;
  std::optional<JobOutcome> outcome = record.active->Resolve(clock_->Monotonic());
  if (!outcome.has_value()) return;
  const bool can_go_on = !IsEnded(outcome->state);
  if (can_go_on && record.job.status().cancel_requested()) {
    outcome = CancelledOutcome();
  } else if (can_go_on) {
    PrepareToGoOnLocked(record, *outcome);
  }
  NoteUnsavedLocked(record, *outcome);
  if (!outcome->error.ok()) *record.job.mutable_status()->mutable_error() = ToProto(outcome->error);
  if (outcome->state == v1::JOB_STATE_SUCCEEDED && record.verification.has_value()) {
    outcome->message = record.verification->passed() ? "the layout computes what one rank does"
                                                     : "the layout differs from one rank";
    *record.job.mutable_status()->mutable_verification() = *std::move(record.verification);
  }
  record.verification.reset();
  record.last_ranks = record.active->ranks();
  const int64_t epoch = record.active->epoch();
  TransitionLocked(record, outcome->state, outcome->reason, outcome->message);
  record.active.reset();
  // Only now may the workers forget it.
  for (const ActiveJob::Rank& rank : record.last_ranks) {
    WorkerEntry* worker = registry_.Find(rank.worker);
    if (worker == nullptr || !worker->attached() || !rank.ended.has_value()) continue;
    v1::CoordinatorMessage message;
    message.mutable_job_ended_ack()->set_job_uid(record.job.uid());
    message.mutable_job_ended_ack()->set_epoch(epoch);
    worker->session->Send(message);
  }
  if (IsEnded(outcome->state)) DiscardStateLocked(record);
}

void Controller::Tick() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const absl::Duration now = clock_->Monotonic();
    for (WorkerEntry* worker : registry_.ExpireLeases(now)) {
      log_->Warning("worker lost",
                    {{"worker", worker->info.name()}, {"message", worker->info.message()}});
      JobRecord* record = worker->job_uid.empty() ? nullptr : FindUidLocked(worker->job_uid);
      if (record != nullptr && record->active != nullptr &&
          record->active->epoch() == worker->epoch) {
        if (ActiveJob::Rank* rank = record->active->FindWorker(worker->info.name())) {
          if (worker->pending.has_value()) rank->pending = worker->pending;
          record->active->Lost(*rank, worker->info.message(), now);
          AbortRanksLocked(*record);
        }
      }
      worker->job_uid.clear();
      worker->info.clear_training_job();
    }
    if (!restart_settled_ && now >= restart_deadline_) {
      restart_settled_ = true;
      for (auto& [name, record] : jobs_) {
        if (record.active == nullptr) continue;
        for (const ActiveJob::Rank& rank : record.active->ranks()) {
          WorkerEntry* worker = registry_.Find(rank.worker);
          if (worker != nullptr && worker->job_uid == record.job.uid()) continue;
          record.active->Lost(*record.active->FindWorker(rank.worker),
                              "it did not attach again after the coordinator's restart", now);
        }
        if (record.active->stopping()) AbortRanksLocked(record);
      }
    }
    for (auto& [name, record] : jobs_) {
      SettleLocked(record);
      if (record.progress_dirty && now - record.progress_published >= options_.progress_interval) {
        SaveLocked(record, Durability::kBuffered);
      }
    }
    std::vector<std::pair<int64_t, absl::Status>> failed_checks;
    for (const auto& [id, check] : checks_) {
      WorkerEntry* worker = registry_.Find(check.worker);
      if (now >= check.deadline) {
        failed_checks.emplace_back(id, absl::UnavailableError(absl::StrCat(
                                           check.worker, " did not check the data within ",
                                           absl::FormatDuration(options_.data_check_timeout))));
      } else if (worker == nullptr || !worker->attached()) {
        failed_checks.emplace_back(id, absl::UnavailableError(absl::StrCat(
                                           check.worker, " was lost while it checked the data")));
      }
    }
    for (auto& [id, status] : failed_checks) {
      callbacks.push_back(FinishDataCheckLocked(id, std::move(status)));
    }
    for (GenerationTable::Entry& entry : RemoveLostGenerationsLocked()) {
      callbacks.push_back([entry = std::move(entry)] {
        entry.sink->End(WithReason(absl::UnavailableError(absl::StrCat(
                                       entry.worker, " was lost while it generated; try again")),
                                   "WORKER_LOST"));
      });
    }
    ScheduleLocked();
  }
  for (auto& callback : callbacks) callback();
}

void Controller::Shutdown() {
  std::lock_guard<std::mutex> lock(mutex_);
  shut_down_ = true;
  for (const GenerationTable::Entry& entry :
       generations_.RemoveIf([](const GenerationTable::Entry&) { return true; })) {
    entry.sink->End(absl::UnavailableError("the coordinator stops"));
  }
  for (auto& [name, record] : jobs_) {
    if (record.progress_dirty) SaveLocked(record, Durability::kBuffered);
  }
  for (const auto& [name, worker] : registry_.workers()) {
    if (worker.attached()) worker.session->Close(absl::UnavailableError("the coordinator stops"));
  }
}

}  // namespace tessera
