#include "worker/zero/collective_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"

namespace tessera {

CollectiveQueue::~CollectiveQueue() {
  if (pending_.empty()) return;
  group_->Abort(absl::AbortedError(
      absl::StrCat(group_->group().members[group_->group_rank()].worker, " failed")));
}

int64_t CollectiveQueue::Add(std::unique_ptr<CollectiveHandle> handle,
                             std::function<absl::Status()> finish) {
  pending_.push_back({std::move(handle), std::move(finish)});
  return ++last_;
}

absl::Status CollectiveQueue::WaitFor(int64_t number) {
  while (!pending_.empty() && last_ - static_cast<int64_t>(pending_.size()) < number) {
    const Pending oldest = std::move(pending_.front());
    pending_.pop_front();
    TESSERA_RETURN_IF_ERROR(oldest.handle->Wait());
    TESSERA_RETURN_IF_ERROR(oldest.finish());
  }
  return absl::OkStatus();
}

}  // namespace tessera
