#include "coordinator/watch_service.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "coordinator/job_state.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchTrainingJobsResponse> {
 public:
  WatchReactor(Controller* controller, const absl::Status& allowed,
               const v1::WatchTrainingJobsRequest& request)
      : controller_(controller), name_(request.name()), revision_(request.revision()) {
    absl::Status status = allowed;
    if (status.ok()) status = Start();
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      FinishLocked(status);
      return;
    }
    const int64_t subscription = controller_->events().Subscribe([this] { Advance(); });
    {
      std::lock_guard<std::mutex> lock(mutex_);
      subscription_ = subscription;
    }
    Advance();
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      writing_ = false;
      if (!ok) return FinishLocked(absl::CancelledError("the client has gone"));
    }
    Advance();
  }

  void OnCancel() override {
    std::lock_guard<std::mutex> lock(mutex_);
    FinishLocked(absl::CancelledError("cancelled by the client"));
  }

  void OnDone() override {
    int64_t subscription;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      subscription = subscription_;
    }
    if (subscription != 0) controller_->events().Unsubscribe(subscription);
    delete this;
  }

 private:
  // With revision 0, the current state comes first, then what follows the newest event before it
  // was read; an event in between may be sent again.
  absl::Status Start() {
    const int64_t newest = controller_->events().newest();
    if (!name_.empty()) {
      absl::StatusOr<v1::TrainingJob> job = controller_->GetJob(name_);
      if (!job.ok()) return job.status();
      if (revision_ == 0 || IsEnded(job->status().state())) {
        revision_ = std::max(newest, job->status().revision());
        first_.push_back(*std::move(job));
      }
      return absl::OkStatus();
    }
    if (revision_ != 0) return absl::OkStatus();
    revision_ = newest;
    v1::ListTrainingJobsRequest list;
    do {
      absl::StatusOr<v1::ListTrainingJobsResponse> page = controller_->ListJobs(list);
      if (!page.ok()) return page.status();
      for (const v1::TrainingJob& job : page->training_jobs()) first_.push_back(job);
      list.set_page_token(page->next_page_token());
    } while (!list.page_token().empty());
    return absl::OkStatus();
  }

  void Advance() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (writing_ || finished_) return;
    if (last_was_terminal_) return FinishLocked(absl::OkStatus());
    if (!first_.empty()) {
      response_.set_revision(revision_);
      *response_.mutable_training_job() = std::move(first_.front());
      first_.pop_front();
    } else {
      absl::StatusOr<JobEvent> event = controller_->events().Next(revision_, name_);
      if (!event.ok()) {
        return FinishLocked(sent_any_ ? absl::ResourceExhaustedError(
                                            "the reader is too slow; resume from its revision")
                                      : event.status());
      }
      if (event->job == nullptr) return;
      revision_ = event->revision;
      response_.set_revision(revision_);
      *response_.mutable_training_job() = *event->job;
    }
    sent_any_ = true;
    last_was_terminal_ = !name_.empty() && IsEnded(response_.training_job().status().state());
    writing_ = true;
    StartWrite(&response_);
  }

  void FinishLocked(const absl::Status& status) {
    if (std::exchange(finished_, true)) return;
    Finish(ToGrpc(status));
  }

  Controller* const controller_;
  const std::string name_;
  std::mutex mutex_;
  int64_t subscription_ = 0;                // guarded by mutex_
  int64_t revision_;                        // guarded by mutex_
  std::deque<v1::TrainingJob> first_;       // guarded by mutex_
  v1::WatchTrainingJobsResponse response_;  // gRPC's while writing_
  bool writing_ = false;                    // guarded by mutex_
  bool finished_ = false;                   // guarded by mutex_
  bool sent_any_ = false;                   // guarded by mutex_
  bool last_was_terminal_ = false;          // guarded by mutex_
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchTrainingJobsResponse>* NewWatchReactor(
    Controller* controller, const absl::Status& allowed,
    const v1::WatchTrainingJobsRequest& request) {
  return new WatchReactor(controller, allowed, request);
}

}  // namespace tessera
