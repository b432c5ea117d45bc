#include "worker/service/job_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

// Enough for the curve of a coordinator that was away for a while.
constexpr size_t kKeptSteps = 512;

}  // namespace

JobRunner::JobRunner(const WorkerContext& context, Logger* log,
                     std::function<void(const v1::WorkerMessage&)> send)
    : context_(context), log_(log), send_(std::move(send)) {}

JobRunner::~JobRunner() {
  std::shared_ptr<JobRun> run;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    run = std::move(run_);
  }
  run.reset();  // joins its thread, which may still report
}

void JobRunner::HandleRun(const v1::RankAssignment& assignment) {
  std::shared_ptr<JobRun> finished;
  std::lock_guard<std::mutex> lock(mutex_);
  if (run_ != nullptr) {
    const v1::RankAssignment& current = run_->assignment();
    if (current.job_uid() == assignment.job_uid() && current.epoch() >= assignment.epoch()) return;
    if (!ended_.has_value()) {
      v1::WorkerMessage refusal;
      refusal.mutable_job_ended()->set_job_uid(assignment.job_uid());
      refusal.mutable_job_ended()->set_epoch(assignment.epoch());
      *refusal.mutable_job_ended()->mutable_status() = ToProto(absl::FailedPreconditionError(
          absl::StrCat(context_.worker, " is busy with ", current.job())));
      send_(refusal);
      return;
    }
    finished = std::move(run_);  // its end was superseded by the new assignment
  }
  log_->Info("job assigned", {{"job", assignment.job()},
                              {"epoch", assignment.epoch()},
                              {"global_rank", assignment.coordinates().global_rank()}});
  formed_.reset();
  memory_.reset();
  steps_.clear();
  ended_.reset();
  aborted_at_.reset();
  run_ = std::make_shared<JobRun>(context_, assignment,
                                  [this](const v1::WorkerMessage& m) { OnReport(m); });
}

void JobRunner::OnReport(const v1::WorkerMessage& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  switch (message.message_case()) {
    case v1::WorkerMessage::kGroupsFormed:
      formed_ = message;
      break;
    case v1::WorkerMessage::kMemory:
      memory_ = message;
      break;
    case v1::WorkerMessage::kStep:
      steps_.push_back(message);
      if (steps_.size() > kKeptSteps) steps_.pop_front();
      break;
    case v1::WorkerMessage::kJobEnded:
      if (message.job_ended().has_weights_kept() &&
          message.job_ended().weights_kept().code() != 0) {
        log_->Warning("the final weights are not kept",
                      {{"job_uid", message.job_ended().job_uid()},
                       {"error", message.job_ended().weights_kept().message()}});
      }
      ended_ = message;
      log_->Info("job ended", {{"job_uid", message.job_ended().job_uid()},
                               {"epoch", message.job_ended().epoch()},
                               {"status", FromProto(message.job_ended().status()).ToString()}});
      break;
    default:
      break;
  }
  send_(message);
  changed_.notify_all();
}

void JobRunner::HandleAbort(const v1::AbortJob& abort) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (run_ == nullptr || run_->assignment().job_uid() != abort.job_uid() ||
      run_->assignment().epoch() > abort.epoch()) {
    // Not here (any more): say so, so that nobody waits.
    v1::WorkerMessage message;
    message.mutable_job_ended()->set_job_uid(abort.job_uid());
    message.mutable_job_ended()->set_epoch(abort.epoch());
    *message.mutable_job_ended()->mutable_status() = ToProto(absl::AbortedError("not running"));
    send_(message);
    return;
  }
  if (ended_.has_value()) {
    send_(*ended_);
    return;
  }
  log_->Info("job aborted", {{"job", run_->assignment().job()}, {"reason", abort.reason()}});
  if (!aborted_at_.has_value()) aborted_at_ = absl::Now();
  run_->Abort(absl::AbortedError(abort.reason()));
}

void JobRunner::HandleSuspend(const v1::SuspendJob& suspend) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (run_ == nullptr || run_->assignment().job_uid() != suspend.job_uid() ||
      run_->assignment().epoch() != suspend.epoch()) {
    return;
  }
  if (ended_.has_value()) {
    send_(*ended_);
    return;
  }
  log_->Info("job to be suspended", {{"job", run_->assignment().job()}});
  run_->Suspend();
}

void JobRunner::HandleDiscardState(const v1::DiscardState& discard) {
  if (context_.tiers == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const bool is_running =
      run_ != nullptr && !ended_.has_value() && run_->assignment().job_uid() == discard.job_uid();
  if (!is_running) context_.tiers->Discard(discard.job_uid());
}

void JobRunner::HandleJobEndedAck(const v1::JobEndedAck& ack) {
  std::shared_ptr<JobRun> finished;
  std::lock_guard<std::mutex> lock(mutex_);
  if (run_ == nullptr || !ended_.has_value() || run_->assignment().job_uid() != ack.job_uid() ||
      run_->assignment().epoch() > ack.epoch()) {
    return;
  }
  finished = std::move(run_);
  formed_.reset();
  memory_.reset();
  steps_.clear();
  ended_.reset();
  changed_.notify_all();
}

std::optional<v1::RunningJob> JobRunner::Running() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (run_ == nullptr) return std::nullopt;
  v1::RunningJob running;
  running.set_job(run_->assignment().job());
  running.set_job_uid(run_->assignment().job_uid());
  running.set_epoch(run_->assignment().epoch());
  running.set_groups_formed(formed_.has_value());
  return running;
}

std::vector<v1::WorkerMessage> JobRunner::Backlog() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<v1::WorkerMessage> messages;
  if (formed_.has_value()) messages.push_back(*formed_);
  if (memory_.has_value()) messages.push_back(*memory_);
  messages.insert(messages.end(), steps_.begin(), steps_.end());
  if (ended_.has_value()) messages.push_back(*ended_);
  return messages;
}

std::optional<v1::PendingCollective> JobRunner::Pending() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (run_ == nullptr || ended_.has_value()) return std::nullopt;
  return run_->Pending();
}

int64_t JobRunner::momentary_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return run_ == nullptr ? 0 : run_->momentary_bytes();
}

absl::Status JobRunner::ReadWeights(const std::string& job_uid,
                                    const std::function<absl::Status()>& check_stop,
                                    const WeightsCallback& callback) const {
  std::shared_ptr<JobRun> run;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (run_ != nullptr && !ended_.has_value() && run_->assignment().job_uid() == job_uid) {
      run = run_;
    }
  }
  if (run == nullptr) return absl::NotFoundError("the job does not run here");
  return run->ReadWeights(check_stop, callback);
}

void JobRunner::Stop(const absl::Status& reason, absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (run_ == nullptr) return;
  if (!ended_.has_value()) run_->Abort(reason);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return run_ == nullptr; });
}

bool JobRunner::IsStuck(absl::Duration limit) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return run_ != nullptr && !ended_.has_value() && aborted_at_.has_value() &&
         absl::Now() - *aborted_at_ > limit;
}

}  // namespace tessera
