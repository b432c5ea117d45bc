// Controller: what clients ask about jobs.
#include <google/protobuf/util/time_util.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/job_state.h"
#include "coordinator/page.h"
#include "coordinator/spec_layout.h"
#include "coordinator/spec_validation.h"
#include "coordinator/verify_request.h"
#include "proto/daemon/process.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/resource_name.h"

namespace tessera {
namespace {

constexpr char kJobList[] = "trainingJobs";

absl::Status CheckRequestId(const std::string& id) {
  if (id.empty()) return absl::OkStatus();
  bool valid = id.size() == 36;
  for (size_t i = 0; valid && i < id.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    valid = dash ? id[i] == '-' : isxdigit(static_cast<unsigned char>(id[i])) != 0;
  }
  if (valid) return absl::OkStatus();
  return InvalidField("request_id", id.substr(0, 80), "must be a UUID");
}

}  // namespace

void Controller::CreateJob(const v1::CreateTrainingJobRequest& request,
                           const std::function<void(absl::StatusOr<v1::TrainingJob>)>& done) {
  NewJob job;
  job.request = request;
  job.record.set_request(request.SerializeAsString());
  CreateNewJob(job, done);
}

void Controller::VerifyJob(const v1::VerifyTrainingJobRequest& request,
                           const std::function<void(absl::StatusOr<v1::TrainingJob>)>& done) {
  absl::StatusOr<v1::CreateTrainingJobRequest> create = VerificationJobOf(request);
  if (!create.ok()) return done(create.status());
  NewJob job;
  job.request = *std::move(create);
  job.record.set_verify_request(request.SerializeAsString());
  CreateNewJob(job, done);
}

void Controller::CreateNewJob(const NewJob& job,
                              const std::function<void(absl::StatusOr<v1::TrainingJob>)>& done) {
  const v1::CreateTrainingJobRequest& request = job.request;
  absl::Status status = CheckRequestId(request.request_id());
  if (status.ok() && !request.training_job_id().empty()) {
    status = CheckResourceId(request.training_job_id(), "training_job_id");
  }
  if (!status.ok()) return done(status);

  absl::StatusOr<v1::TrainingJob> answer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    answer = EarlierAnswerLocked(job);
  }
  // A retry, or a request id that was used for another request.
  if (!absl::IsNotFound(answer.status())) return done(std::move(answer));
  if (status = CheckNewJob(request); !status.ok()) return done(status);

  auto after_check = [this, job, done](const absl::Status& checked) {
    if (!checked.ok()) return done(checked);
    absl::StatusOr<v1::TrainingJob> committed;
    {
      std::lock_guard<std::mutex> commit_lock(mutex_);
      committed = CommitLocked(job);
    }
    done(std::move(committed));
  };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Answered when a worker has looked at the files.
    if (StartDataCheckLocked(request.training_job().spec(), std::move(after_check))) return;
    // No worker is attached: the files are checked when the job gets workers.
    answer = CommitLocked(job);
  }
  done(std::move(answer));
}

absl::Status Controller::CheckNewJob(const v1::CreateTrainingJobRequest& request) const {
  const v1::TrainingJobSpec& spec = request.training_job().spec();
  absl::Status status = ValidateSpec(spec);
  if (!status.ok()) return status;
  if (!request.training_job_id().empty()) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string name = JobName(request.training_job_id());
    if (jobs_.count(name) > 0) {
      return WithReason(absl::AlreadyExistsError(absl::StrCat(name, ": exists")), "JOB_EXISTS");
    }
  }
  // Without the lock: the search for layouts that fit takes its time.
  return CheckMemory(spec);
}

absl::StatusOr<v1::TrainingJob> Controller::EarlierAnswerLocked(const NewJob& job) const {
  const std::string& id = job.request.request_id();
  if (id.empty()) return absl::NotFoundError("no request id");
  absl::StatusOr<v1::RequestRecord> record = journal_->FindRequest(id);
  if (!record.ok()) return record.status();
  if (record->sent_case() != job.record.sent_case() || record->request() != job.record.request() ||
      record->verify_request() != job.record.verify_request()) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("request_id: ", id, ": was used for another request")),
                      "REQUEST_ID_REUSED");
  }
  return record->answer();
}

absl::StatusOr<v1::TrainingJob> Controller::CommitLocked(const NewJob& created) {
  const v1::CreateTrainingJobRequest& request = created.request;
  if (shut_down_) return absl::UnavailableError("the coordinator stops");
  // The world may have changed while a worker looked at the files.
  absl::StatusOr<v1::TrainingJob> earlier = EarlierAnswerLocked(created);
  if (!absl::IsNotFound(earlier.status())) return earlier;

  const std::string uid = NewUuid();
  const std::string id = request.training_job_id().empty() ? absl::StrCat("job-", uid.substr(0, 8))
                                                           : request.training_job_id();
  v1::TrainingJob job;
  job.set_name(JobName(id));
  job.set_uid(uid);
  *job.mutable_spec() = request.training_job().spec();
  *job.mutable_create_time() =
      google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(clock_->Now()));
  v1::TrainingJobStatus& status = *job.mutable_status();
  status.set_state(v1::JOB_STATE_PENDING);
  status.mutable_progress()->set_total_steps(job.spec().steps());
  v1::JobCondition& condition = *status.add_conditions();
  condition.set_state(v1::JOB_STATE_PENDING);
  condition.set_reason("CREATED");
  condition.set_message(absl::StrCat("waits for ", MeshOf(job.spec().mesh()).world_size(),
                                     " workers; ", FleetLocked().workers.size(), " are attached"));
  *condition.mutable_transition_time() = job.create_time();
  if (jobs_.count(job.name()) > 0) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat(job.name(), ": exists")), "JOB_EXISTS");
  }
  if (request.validate_only()) return job;

  absl::StatusOr<int64_t> revision = journal_->NextRevision();
  if (!revision.ok()) return revision.status();
  status.set_revision(*revision);
  v1::RequestRecord record = created.record;
  *record.mutable_answer() = job;
  absl::Status journaled = journal_->Create(job, request.request_id(), record);
  if (!journaled.ok()) return journaled;
  AddLocked(job);
  events_->Append({*revision, std::make_shared<v1::TrainingJob>(job)});
  log_->Info("job created", {{"job", job.name()}, {"uid", uid}});
  ScheduleLocked();
  return job;
}

absl::StatusOr<v1::TrainingJob> Controller::GetJob(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<const JobRecord*> record = FindJobLocked(name, "name");
  if (!record.ok()) return record.status();
  return (*record)->job;
}

absl::StatusOr<v1::ListTrainingJobsResponse> Controller::ListJobs(
    const v1::ListTrainingJobsRequest& request) const {
  absl::StatusOr<Page> page = ParsePage(kJobList, request.page_size(), request.page_token());
  if (!page.ok()) return page.status();
  v1::ListTrainingJobsResponse response;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = jobs_.upper_bound(page->after); it != jobs_.end(); ++it) {
    if (response.training_jobs_size() == page->size) {
      response.set_next_page_token(
          MakePageToken(kJobList, response.training_jobs().rbegin()->name()));
      break;
    }
    *response.add_training_jobs() = it->second.job;
  }
  return response;
}

absl::StatusOr<v1::TrainingJob> Controller::CancelJob(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<JobRecord*> found = FindJobLocked(name, "name");
  if (!found.ok()) return found.status();
  JobRecord& record = **found;
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  if (IsEnded(status.state())) return record.job;
  if (record.active == nullptr) {
    status.set_cancel_requested(true);
    TransitionLocked(record, v1::JOB_STATE_CANCELLED, "CANCELLED", "cancelled on request");
    DiscardStateLocked(record);
    const v1::TrainingJob answer = record.job;
    ScheduleLocked();  // it may have held up others
    return answer;
  }
  if (!status.cancel_requested()) {
    status.set_cancel_requested(true);
    SaveLocked(record, Durability::kSynced);
    record.active->Cancel(clock_->Monotonic());
    AbortRanksLocked(record);
  }
  return record.job;
}

}  // namespace tessera
