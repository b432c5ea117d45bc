#include "worker/offload/tier_read.h"

#include <utility>

namespace tessera {

TierRead TierRead::Start(TierStore& store, const TierKey& key, DType dtype, int64_t num_elements,
                         absl::Span<uint8_t> to) {
  TierRead read;
  read.state_ = std::make_shared<State>();
  read.state_->size_bytes = static_cast<int64_t>(to.size());
  auto finish = [state = read.state_](absl::Status status) {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->result = std::move(status);
    state->changed.notify_all();
  };
  const absl::Status started = store.StartRead(key, dtype, num_elements, to, finish);
  if (!started.ok()) finish(started);
  return read;
}

TierRead& TierRead::operator=(TierRead&& other) noexcept {
  if (state_ != nullptr) state_->Await().IgnoreError();
  state_ = std::move(other.state_);
  return *this;
}

TierRead::~TierRead() {
  if (state_ != nullptr) state_->Await().IgnoreError();
}

absl::Status TierRead::State::Await() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return result.has_value(); });
  return *result;
}

absl::Status TierRead::Wait(TierCounts& counts) {
  counts.read_bytes += state_->size_bytes;
  if (!state_->is_done()) {
    ++counts.late_reads;
    const TierWait wait(counts);
    state_->Await().IgnoreError();
  }
  absl::Status result = state_->Await();
  state_.reset();
  return result;
}

}  // namespace tessera
