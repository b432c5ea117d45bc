#include "coordinator/worker_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/resource_name.h"

namespace tessera {

Candidate WorkerEntry::candidate() const {
  return {info.name(),
          info.host_id(),
          {info.device_memory_bytes(), info.host_memory_bytes(), info.nvme_free_bytes()}};
}

absl::StatusOr<WorkerEntry*> WorkerRegistry::Register(const v1::RegisterWorker& request,
                                                      std::shared_ptr<WorkerSession> session,
                                                      int64_t session_id,
                                                      absl::Duration monotonic) {
  if (request.protocol_version() != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("protocol_version: ", request.protocol_version(), ": must be 1"));
  }
  absl::string_view id = request.worker().name();
  if (!absl::ConsumePrefix(&id, WorkerName(""))) {
    return InvalidField("worker.name", request.worker().name(), "must be workers/{worker}");
  }
  absl::Status status = CheckResourceId(id, "worker.name");
  if (!status.ok()) return status;
  if (request.worker().instance_id().empty()) {
    return InvalidField("worker.instance_id", "", "required");
  }

  WorkerEntry& entry = workers_[request.worker().name()];
  const bool same_process = entry.info.instance_id() == request.worker().instance_id();
  if (entry.attached() && !same_process) {
    return absl::AlreadyExistsError(
        absl::StrCat(request.worker().name(), ": a worker of this name is attached (pid ",
                     entry.info.pid(), " on ", entry.info.host_name(), ")"));
  }
  if (entry.attached()) entry.session->Close(absl::AbortedError("replaced by a newer stream"));
  if (!same_process) {
    entry = WorkerEntry();
  }
  entry.info = request.worker();
  entry.info.clear_message();
  entry.info.set_state(v1::WORKER_STATE_IDLE);
  entry.address = request.address();
  entry.session = std::move(session);
  entry.session_id = session_id;
  entry.last_heard = monotonic;
  entry.detached_at.reset();
  entry.pending.reset();
  entry.saved.clear();
  for (const v1::SavedState& state : request.saved()) entry.saved[state.job_uid()] = state;
  return &entry;
}

WorkerEntry* WorkerRegistry::FindSession(int64_t session_id) {
  for (auto& [name, entry] : workers_) {
    if (entry.attached() && entry.session_id == session_id) return &entry;
  }
  return nullptr;
}

WorkerEntry* WorkerRegistry::Find(const std::string& name) {
  auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

void WorkerRegistry::Detach(WorkerEntry& worker, absl::Duration monotonic) {
  worker.session.reset();
  worker.detached_at = monotonic;
}

std::vector<WorkerEntry*> WorkerRegistry::ExpireLeases(absl::Duration monotonic) {
  std::vector<WorkerEntry*> lost;
  for (auto it = workers_.begin(); it != workers_.end();) {
    WorkerEntry& worker = it->second;
    if (worker.info.state() == v1::WORKER_STATE_LOST) {
      if (!worker.attached() && monotonic - worker.last_heard > options_.keep_lost) {
        it = workers_.erase(it);
        continue;
      }
    } else if (worker.attached() && monotonic - worker.last_heard > options_.lease) {
      worker.info.set_message(absl::StrCat(
          "no heartbeat for ", absl::FormatDuration(options_.lease), " on a live connection"));
      worker.session->Close(absl::DeadlineExceededError(worker.info.message()));
      worker.session.reset();
      worker.info.set_state(v1::WORKER_STATE_LOST);
      lost.push_back(&worker);
    } else if (!worker.attached() && worker.detached_at.has_value() &&
               monotonic - *worker.detached_at >= options_.reattach_grace) {
      worker.info.set_message("its stream ended and it did not come back");
      worker.info.set_state(v1::WORKER_STATE_LOST);
      lost.push_back(&worker);
    }
    ++it;
  }
  return lost;
}

std::vector<Candidate> WorkerRegistry::IdleWorkers() const {
  std::vector<Candidate> idle;
  for (const auto& [name, worker] : workers_) {
    if (worker.idle()) idle.push_back(worker.candidate());
  }
  return idle;
}

}  // namespace tessera
