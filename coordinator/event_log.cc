#include "coordinator/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

void EventLog::Append(JobEvent event) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    newest_ = event.revision;
    events_.push_back(std::move(event));
    if (events_.size() > capacity_) {
      dropped_ = events_.front().revision;
      events_.pop_front();
    }
  }
  std::lock_guard<std::mutex> lock(subscribers_mutex_);
  for (auto& [id, wake] : subscribers_) wake();
}

absl::StatusOr<JobEvent> EventLog::Next(int64_t revision, const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (revision < dropped_ || revision > newest_) {
    return absl::OutOfRangeError(absl::StrCat("revision ", revision, " is not among those held, ",
                                              dropped_, " .. ", newest_,
                                              ": get the job and watch from its revision"));
  }
  auto it = std::upper_bound(
      events_.begin(), events_.end(), revision,
      [](int64_t wanted, const JobEvent& event) { return wanted < event.revision; });
  for (; it != events_.end(); ++it) {
    if (name.empty() || it->job->name() == name) return *it;
  }
  return JobEvent();
}

int64_t EventLog::newest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return newest_;
}

int64_t EventLog::Subscribe(std::function<void()> wake) {
  std::lock_guard<std::mutex> lock(subscribers_mutex_);
  subscribers_[next_id_] = std::move(wake);
  return next_id_++;
}

void EventLog::Unsubscribe(int64_t id) {
  std::lock_guard<std::mutex> lock(subscribers_mutex_);
  subscribers_.erase(id);
}

}  // namespace tessera
