// Controller: running jobs that make room for one of higher priority.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/controller.h"
#include "coordinator/job_state.h"
#include "coordinator/preemption.h"
#include "coordinator/spec_layout.h"

namespace tessera {
namespace {

// It gives its workers back soon, whatever this job does.
bool IsLeaving(const v1::TrainingJob& job, const ActiveJob& active) {
  return job.status().state() == v1::JOB_STATE_SUSPENDING || active.stopping();
}

bool IsLower(const v1::TrainingJob& job, const v1::TrainingJob& other) {
  return other.status().state() == v1::JOB_STATE_RUNNING &&
         other.spec().priority() < job.spec().priority() && !other.spec().has_verification();
}

// It could not save its state, and would be asked again and again.
bool CouldNotSave(const v1::TrainingJob& other) {
  return other.status().conditions().rbegin()->reason() == kSuspendFailed;
}

bool MayPreempt(const v1::TrainingJob& job, const v1::TrainingJob& other) {
  return IsLower(job, other) && !CouldNotSave(other);
}

// Of a lower job that goes on training.
std::string CouldNotSaveText(const v1::TrainingJob& other) {
  return absl::StrCat(other.name(),
                      " cannot make room: ", other.status().conditions().rbegin()->message());
}

}  // namespace

void Controller::PreemptAnywhereLocked(JobRecord& record, const std::vector<Candidate>& idle) {
  std::vector<Candidate> free = idle;  // now or soon
  std::vector<PreemptibleJob> jobs;
  std::vector<JobRecord*> records;
  std::vector<std::string> without_success;
  for (auto& [name, other] : jobs_) {
    if (other.active == nullptr) continue;
    std::vector<Candidate> workers;
    for (const ActiveJob::Rank& rank : other.active->ranks()) {
      const WorkerEntry* worker = registry_.Find(rank.worker);
      const bool stays = worker != nullptr && worker->attached() &&
                         worker->job_uid == other.job.uid() &&
                         worker->info.state() != v1::WORKER_STATE_STOPPING;
      if (stays) workers.push_back(worker->candidate());
    }
    if (IsLeaving(other.job, *other.active)) {
      free.insert(free.end(), workers.begin(), workers.end());
    } else if (MayPreempt(record.job, other.job)) {
      jobs.push_back(
          {name, other.job.spec().priority(),
           google::protobuf::util::TimeUtil::TimestampToNanoseconds(other.job.create_time()),
           std::move(workers)});
      records.push_back(&other);
    } else if (IsLower(record.job, other.job)) {
      without_success.push_back(CouldNotSaveText(other.job));
    }
  }
  const auto chosen =
      ChoosePreempted(MeshOf(record.job.spec().mesh()), record.memory->Needs(), free, jobs);
  if (!chosen.has_value()) {
    if (without_success.empty()) return;
    TellWaitingLocked(
        record, kWaitingForWorkers,
        absl::StrCat(record.job.name(), ": ", absl::StrJoin(without_success, "; and ")));
    return;
  }
  for (const size_t job : *chosen) PreemptLocked(*records[job], record);
}

std::string Controller::HoldersThatStayLocked(const JobRecord& record) {
  std::set<std::string> texts;  // a job may be on several of them
  for (const v1::RankPlacement& place : record.job.status().placement()) {
    const WorkerEntry* worker = registry_.Find(place.worker());
    if (worker == nullptr || worker->job_uid.empty()) continue;
    const JobRecord* other = FindUidLocked(worker->job_uid);
    if (other == nullptr || !IsLower(record.job, other->job) || !CouldNotSave(other->job)) continue;
    texts.insert(absl::StrCat("; ", CouldNotSaveText(other->job)));
  }
  return absl::StrJoin(texts, "");
}

void Controller::PreemptHoldersLocked(JobRecord& record) {
  std::vector<JobRecord*> victims;
  for (const v1::RankPlacement& place : record.job.status().placement()) {
    const WorkerEntry* worker = registry_.Find(place.worker());
    if (worker == nullptr || worker->job_uid.empty()) continue;
    JobRecord* other = FindUidLocked(worker->job_uid);
    if (other == nullptr || other->active == nullptr) continue;  // it is being aborted
    if (IsLeaving(other->job, *other->active)) continue;
    if (!MayPreempt(record.job, other->job)) return;
    const bool is_there = std::find(victims.begin(), victims.end(), other) != victims.end();
    if (!is_there) victims.push_back(other);
  }
  for (JobRecord* victim : victims) PreemptLocked(*victim, record);
}

void Controller::PreemptLocked(JobRecord& victim, const JobRecord& record) {
  BeginSuspendLocked(
      victim, kPreempted,
      absl::StrCat("for ", record.job.name(), ", whose priority ", record.job.spec().priority(),
                   " is above ", victim.job.spec().priority()));
}

}  // namespace tessera
