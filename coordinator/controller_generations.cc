// Controller: text from weights that workers have.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/generate_request.h"
#include "proto/daemon/process.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/resource_name.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

absl::Status NotReady(const std::string& job, const std::string& why) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat(job, ": ", why)), "NO_WEIGHTS");
}

}  // namespace

absl::StatusOr<std::string> Controller::StartGeneration(
    const v1::GenerateRequest& request, const std::shared_ptr<GenerationSink>& sink) {
  absl::Status valid = ValidateGenerateRequest(request);
  if (!valid.ok()) return valid;
  v1::CoordinatorMessage message;
  v1::RunGeneration& run = *message.mutable_run_generation();
  *run.mutable_request() = request;
  std::lock_guard<std::mutex> lock(mutex_);
  if (shut_down_) return absl::UnavailableError("the coordinator stops");
  absl::StatusOr<WorkerEntry*> worker = request.has_training_job()
                                            ? WorkerWithWeightsLocked(request.training_job(), run)
                                            : AnyWorkerLocked();
  if (!worker.ok()) return worker.status();
  const std::string id = NewUuid();
  run.set_generation_id(id);
  generations_.Add(id, {(*worker)->info.name(), (*worker)->session_id, sink});
  (*worker)->session->Send(message);
  return id;
}

absl::StatusOr<WorkerEntry*> Controller::WorkerWithWeightsLocked(const std::string& job,
                                                                 v1::RunGeneration& run) {
  absl::StatusOr<std::string> id = JobId(job, "training_job");
  if (!id.ok()) return id.status();
  auto it = jobs_.find(job);
  if (it == jobs_.end()) {
    return WithReason(absl::NotFoundError(absl::StrCat(job, ": there is no such job")),
                      "JOB_NOT_FOUND");
  }
  const v1::TrainingJob& record = it->second.job;
  const v1::TrainingJobStatus& status = record.status();
  run.set_job_uid(record.uid());
  *run.mutable_spec() = record.spec();
  std::string name;
  if (record.spec().has_verification()) {
    return NotReady(job, "compares its layout with one rank, and keeps no weights");
  }
  if (status.state() == v1::JOB_STATE_RUNNING && status.cancel_requested()) {
    return NotReady(job, "is being cancelled");
  }
  if (status.state() == v1::JOB_STATE_RUNNING) {
    name = status.placement(0).worker();
  } else if (status.state() == v1::JOB_STATE_SUCCEEDED) {
    name = status.weights_worker();
    if (name.empty()) return NotReady(job, "its final weights were not kept");
  } else {
    const std::string state = v1::JobState_Name(status.state());
    return NotReady(job, absl::StrCat("is ", state.substr(state.rfind('_') + 1),
                                      ": must be RUNNING or SUCCEEDED to have weights"));
  }
  WorkerEntry* worker = registry_.Find(name);
  if (worker != nullptr && worker->attached()) return worker;
  return WithReason(absl::UnavailableError(absl::StrCat(job, ": its weights are on ", name,
                                                        ", which is not attached")),
                    "WORKER_NOT_ATTACHED");
}

absl::StatusOr<WorkerEntry*> Controller::AnyWorkerLocked() {
  WorkerEntry* chosen = nullptr;  // an idle one where there is one
  for (const auto& [name, worker] : registry_.workers()) {
    if (worker.attached() && (chosen == nullptr || (worker.idle() && !chosen->idle()))) {
      chosen = registry_.Find(name);
    }
  }
  if (chosen == nullptr) {
    return WithReason(absl::UnavailableError("no worker is attached"), "WORKER_NOT_ATTACHED");
  }
  return chosen;
}

std::function<void()> Controller::HandleGeneratedLocked(const WorkerEntry& worker,
                                                        const v1::Generated& message) {
  std::shared_ptr<GenerationSink> sink =
      generations_.Find(message.generation_id(), worker.session_id);
  if (sink == nullptr) return [] {};  // cancelled meanwhile
  if (message.has_status()) generations_.Remove(message.generation_id());
  return [sink = std::move(sink), message] {
    if (message.has_response()) sink->Send(message.response());
    if (message.has_status()) sink->End(FromProto(message.status()));
  };
}

void Controller::CancelGeneration(const std::string& id) {
  std::lock_guard<std::mutex> lock(mutex_);
  const GenerationTable::Entry entry = generations_.Remove(id);
  WorkerEntry* worker = registry_.FindSession(entry.session_id);
  if (worker == nullptr || !worker->attached()) return;
  v1::CoordinatorMessage message;
  message.mutable_cancel_generation()->set_generation_id(id);
  worker->session->Send(message);
}

std::vector<GenerationTable::Entry> Controller::RemoveLostGenerationsLocked() {
  return generations_.RemoveIf([this](const GenerationTable::Entry& entry) {
    const WorkerEntry* worker = registry_.FindSession(entry.session_id);
    return worker == nullptr || !worker->attached();
  });
}

}  // namespace tessera
