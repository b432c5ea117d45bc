// Controller: what workers say, and what clients ask about them.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/job_progress.h"
#include "coordinator/page.h"
#include "coordinator/spec_layout.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/resource_name.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

constexpr char kWorkerList[] = "workers";

bool HoldsStateOf(const v1::RegisterWorker& request, const std::string& job_uid) {
  return std::any_of(request.saved().begin(), request.saved().end(),
                     [&](const v1::SavedState& state) { return state.job_uid() == job_uid; });
}

}  // namespace

absl::StatusOr<int64_t> Controller::AttachWorker(const v1::RegisterWorker& request,
                                                 const std::shared_ptr<WorkerSession>& session) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (shut_down_) return absl::UnavailableError("the coordinator stops");
  // After a restart a name is kept for the process that runs a job under it. It is gone if another
  // one has the job's state, as a tier has one owner at a time.
  for (const auto& [name, record] : jobs_) {
    ActiveJob::Rank* rank = restart_settled_ || record.active == nullptr
                                ? nullptr
                                : record.active->FindWorker(request.worker().name());
    if (rank != nullptr && !rank->ended.has_value() && !rank->lost &&
        rank->instance_id != request.worker().instance_id() &&
        !HoldsStateOf(request, record.job.uid())) {
      return absl::UnavailableError(
          absl::StrCat(request.worker().name(), ": is kept for the process that runs ", name));
    }
  }
  const int64_t session_id = next_session_id_++;
  // Whatever the process of this name was doing, if it is another one, is lost with it.
  WorkerEntry* before = registry_.Find(request.worker().name());
  if (before != nullptr && !before->attached() && !before->job_uid.empty() &&
      before->info.instance_id() != request.worker().instance_id()) {
    JobRecord* record = FindUidLocked(before->job_uid);
    if (record != nullptr && record->active != nullptr) {
      if (ActiveJob::Rank* rank = record->active->FindWorker(before->info.name())) {
        if (before->pending.has_value()) rank->pending = before->pending;
        record->active->Lost(*rank, "its process ended and another one took its place",
                             clock_->Monotonic());
        AbortRanksLocked(*record);
        SettleLocked(*record);
      }
    }
  }
  absl::StatusOr<WorkerEntry*> worker =
      registry_.Register(request, session, session_id, clock_->Monotonic());
  if (!worker.ok()) return worker.status();

  v1::CoordinatorMessage message;
  message.mutable_registered()->set_heartbeat_interval_ms(
      absl::ToInt64Milliseconds(options_.lease.heartbeat_interval));
  message.mutable_registered()->set_coordinator_instance_id(instance_id_);
  session->Send(message);
  log_->Info("worker attached", {{"worker", request.worker().name()},
                                 {"pid", request.worker().pid()},
                                 {"host", request.worker().host_name()},
                                 {"job", request.running().job()}});
  ReconcileLocked(**worker, request);
  DiscardEndedLocked(**worker);
  ScheduleLocked();
  return session_id;
}

void Controller::ReconcileLocked(WorkerEntry& worker, const v1::RegisterWorker& request) {
  worker.job_uid.clear();
  worker.info.clear_training_job();
  const v1::RunningJob& running = request.running();
  if (!running.job_uid().empty()) {
    worker.job_uid = running.job_uid();
    worker.epoch = running.epoch();
    worker.info.set_training_job(running.job());
    worker.info.set_state(v1::WORKER_STATE_BUSY);
    JobRecord* record = FindUidLocked(running.job_uid());
    if (record != nullptr && record->active != nullptr &&
        record->active->epoch() == running.epoch()) {
      // It goes on, unless the job is being stopped.
      if (record->active->stopping()) AbortRanksLocked(*record);
      const ActiveJob::Rank* rank = record->active->FindWorker(worker.info.name());
      const bool is_suspending = record->job.status().state() == v1::JOB_STATE_SUSPENDING;
      if (is_suspending && rank != nullptr) SendSuspendLocked(*record, *rank);
      return;
    }
    SendAbortLocked(worker, running.job_uid(), running.epoch(),
                    "the coordinator does not know this run of the job");
    return;
  }
  // Idle. If it was expected to run something, that is gone.
  for (auto& [name, record] : jobs_) {
    if (record.active == nullptr) continue;
    ActiveJob::Rank* rank = record.active->FindWorker(worker.info.name());
    if (rank == nullptr || rank->ended.has_value()) continue;
    record.active->Lost(*rank, "it attached again without the job", clock_->Monotonic());
    AbortRanksLocked(record);
    SettleLocked(record);
  }
}

void Controller::DetachWorker(int64_t session_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  WorkerEntry* worker = registry_.FindSession(session_id);
  if (worker == nullptr) return;
  registry_.Detach(*worker, clock_->Monotonic());
  log_->Info("worker detached", {{"worker", worker->info.name()}});
}

void Controller::HandleWorkerMessage(int64_t session_id, const v1::WorkerMessage& message) {
  std::function<void()> callback;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    WorkerEntry* worker = registry_.FindSession(session_id);
    if (worker == nullptr) return;
    worker->last_heard = clock_->Monotonic();
    *worker->info.mutable_last_heartbeat_time() =
        google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(clock_->Now()));
    switch (message.message_case()) {
      case v1::WorkerMessage::kHeartbeat:
        worker->info.set_device_memory_used_bytes(message.heartbeat().device_memory_used_bytes());
        worker->info.set_host_memory_used_bytes(message.heartbeat().host_memory_used_bytes());
        worker->info.set_nvme_free_bytes(message.heartbeat().nvme_free_bytes());
        worker->info.set_nvme_used_bytes(message.heartbeat().nvme_used_bytes());
        worker->pending.reset();
        if (message.heartbeat().has_pending()) worker->pending = message.heartbeat().pending();
        break;
      case v1::WorkerMessage::kGroupsFormed:
        HandleGroupsFormedLocked(*worker, message.groups_formed());
        break;
      case v1::WorkerMessage::kStep:
        HandleStepLocked(*worker, message.step());
        break;
      case v1::WorkerMessage::kMemory:
        HandleMemoryLocked(*worker, message.memory());
        break;
      case v1::WorkerMessage::kJobEnded:
        HandleJobEndedLocked(*worker, message.job_ended());
        break;
      case v1::WorkerMessage::kDataChecked:
        callback = FinishDataCheckLocked(message.data_checked().check_id(),
                                         FromProto(message.data_checked().status()));
        break;
      case v1::WorkerMessage::kGenerated:
        callback = HandleGeneratedLocked(*worker, message.generated());
        break;
      case v1::WorkerMessage::kSuspendFailed:
        HandleSuspendFailedLocked(*worker, message.suspend_failed());
        break;
      case v1::WorkerMessage::kStopping:
        worker->info.set_state(v1::WORKER_STATE_STOPPING);
        if (JobRecord* record = FindUidLocked(worker->job_uid);
            record != nullptr && record->active != nullptr) {
          ActiveJob::Rank* rank = record->active->FindWorker(worker->info.name());
          if (rank != nullptr) rank->was_asked_to_stop = true;
        }
        log_->Info("worker stopping", {{"worker", worker->info.name()}});
        break;
      case v1::WorkerMessage::kRegister:
      case v1::WorkerMessage::MESSAGE_NOT_SET:
        worker->session->Close(absl::InvalidArgumentError("unexpected message on the stream"));
        break;
    }
  }
  if (callback) callback();
}

void Controller::HandleGroupsFormedLocked(WorkerEntry& worker, const v1::GroupsFormed& message) {
  JobRecord* record = FindUidLocked(message.job_uid());
  if (record == nullptr || record->active == nullptr ||
      record->active->epoch() != message.epoch()) {
    return;
  }
  ActiveJob::Rank* rank = record->active->FindWorker(worker.info.name());
  if (rank == nullptr) return;
  rank->formed = true;
  rank->shards.assign(message.shards().begin(), message.shards().end());
  if (!record->active->AllFormed()) return;
  SaveShardsLocked(*record, record->active->Shards());
  if (record->job.status().state() == v1::JOB_STATE_ADMITTED) {
    // From now on it goes on from what it commits, if it does.
    record->active->set_is_recoverable(OffloadOf(record->job.spec()).commits_steps());
    record->job.mutable_status()->clear_saved_step();
    TransitionLocked(*record, v1::JOB_STATE_RUNNING, "GROUPS_FORMED", "all groups are connected");
    if (record->job.status().suspend_requested()) {
      BeginSuspendLocked(*record, "SUSPEND_REQUESTED",
                         "suspended on request while it was starting");
    }
  }
}

void Controller::HandleStepLocked(WorkerEntry& worker, const v1::StepReport& report) {
  JobRecord* record = FindUidLocked(report.job_uid());
  if (record == nullptr || record->active == nullptr || record->active->epoch() != report.epoch() ||
      record->active->FindWorker(worker.info.name()) == nullptr) {
    return;
  }
  v1::JobProgress& progress = *record->job.mutable_status()->mutable_progress();
  ApplyStepReport(report, progress);
  const absl::Duration now = clock_->Monotonic();
  if (!record->speed_origin.has_value()) {
    record->speed_origin.emplace(report.step(), now - absl::Seconds(report.seconds()));
    if (report.step() > 0) --record->speed_origin->first;
  }
  const int64_t done = report.step() - record->speed_origin->first;
  if (done > 0) {
    const double seconds = absl::ToDoubleSeconds(now - record->speed_origin->second);
    progress.set_seconds_left(seconds / static_cast<double>(done) *
                              static_cast<double>(progress.total_steps() - report.step()));
  }
  record->progress_dirty = true;
  if (now - record->progress_published >= options_.progress_interval) {
    SaveLocked(*record, Durability::kBuffered);
  }
}

void Controller::HandleMemoryLocked(WorkerEntry& worker, const v1::MemoryReport& report) {
  JobRecord* record = FindUidLocked(report.job_uid());
  if (record == nullptr || record->active == nullptr || record->active->epoch() != report.epoch()) {
    return;
  }
  const ActiveJob::Rank* rank = record->active->FindWorker(worker.info.name());
  if (rank == nullptr) return;
  for (v1::RankMemory& memory : *record->job.mutable_status()->mutable_memory()) {
    if (memory.global_rank() != rank->coordinates.global_rank()) continue;
    *memory.mutable_measured() = report.peak();
    if (report.has_peak_tiers()) *memory.mutable_measured_tiers() = report.peak_tiers();
    record->progress_dirty = true;  // every rank reports at about the same time
  }
}

void Controller::HandleJobEndedLocked(WorkerEntry& worker, const v1::JobEnded& message) {
  if (worker.job_uid == message.job_uid() && worker.epoch == message.epoch()) {
    worker.job_uid.clear();
    worker.pending.reset();
    worker.info.clear_training_job();
    if (worker.info.state() == v1::WORKER_STATE_BUSY) {
      worker.info.set_state(v1::WORKER_STATE_IDLE);
    }
  }
  NoteSavedLocked(worker, message);
  JobRecord* record = FindUidLocked(message.job_uid());
  ActiveJob* active = record == nullptr ? nullptr : record->active.get();
  if (active == nullptr || active->epoch() != message.epoch()) {
    // Already settled, or of a past epoch: the worker need not keep it.
    v1::CoordinatorMessage ack;
    ack.mutable_job_ended_ack()->set_job_uid(message.job_uid());
    ack.mutable_job_ended_ack()->set_epoch(message.epoch());
    worker.session->Send(ack);
    DiscardEndedLocked(worker);
    ScheduleLocked();
    return;
  }
  ActiveJob::Rank* rank = active->FindWorker(worker.info.name());
  if (rank == nullptr) return;
  if (message.has_pending()) rank->pending = message.pending();
  if (!message.sample().empty()) record->job.mutable_status()->set_sample(message.sample());
  if (message.has_weights_kept() && FromProto(message.weights_kept()).ok()) {
    record->job.mutable_status()->set_weights_worker(worker.info.name());
  }
  if (message.has_verification() && rank->coordinates.global_rank() == 0) {
    record->verification = message.verification();
  }
  const bool was_stopping = active->stopping();
  const absl::Status status = FromProto(message.status());
  std::optional<int64_t> suspended_step;
  if (message.has_suspended_step()) suspended_step = message.suspended_step();
  if (!status.ok() && rank->was_asked_to_stop && active->is_recoverable()) {
    // It will be back; that it had the time to say so makes no difference, nor that others, whose
    // operations it ended, said so first.
    active->Lost(*rank, std::string(status.message()), clock_->Monotonic());
  } else {
    active->Ended(*rank, status, clock_->Monotonic(), suspended_step);
  }
  if (active->stopping() && !was_stopping) AbortRanksLocked(*record);
  SettleLocked(*record);
  ScheduleLocked();
}

bool Controller::StartDataCheckLocked(const v1::TrainingJobSpec& spec,
                                      std::function<void(const absl::Status&)> done) {
  absl::StatusOr<WorkerEntry*> any = AnyWorkerLocked();
  if (!any.ok()) return false;
  WorkerEntry* chosen = *any;
  const int64_t id = next_check_id_++;
  checks_[id] = {chosen->info.name(), clock_->Monotonic() + options_.data_check_timeout,
                 std::move(done)};
  v1::CoordinatorMessage message;
  message.mutable_check_data()->set_check_id(id);
  *message.mutable_check_data()->mutable_spec() = spec;
  chosen->session->Send(message);
  return true;
}

std::function<void()> Controller::FinishDataCheckLocked(int64_t check_id, absl::Status status) {
  auto it = checks_.find(check_id);
  if (it == checks_.end()) return [] {};
  std::function<void(const absl::Status&)> done = std::move(it->second.done);
  checks_.erase(it);
  return [done = std::move(done), status = std::move(status)] { done(status); };
}

absl::StatusOr<v1::ListWorkersResponse> Controller::ListWorkers(
    const v1::ListWorkersRequest& request) const {
  absl::StatusOr<Page> page = ParsePage(kWorkerList, request.page_size(), request.page_token());
  if (!page.ok()) return page.status();
  v1::ListWorkersResponse response;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto& workers = registry_.workers();
  for (auto it = workers.upper_bound(page->after); it != workers.end(); ++it) {
    if (response.workers_size() == page->size) {
      response.set_next_page_token(MakePageToken(kWorkerList, response.workers().rbegin()->name()));
      break;
    }
    *response.add_workers() = it->second.info;
  }
  return response;
}

}  // namespace tessera
