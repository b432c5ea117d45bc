#include "worker/offload/tier_transfer.h"

#include <utility>

namespace tessera {

TierTransfer TierTransfer::Start(absl::FunctionRef<absl::Status(const Done&)> start) {
  TierTransfer transfer;
  transfer.state_ = std::make_shared<State>();
  auto finish = [state = transfer.state_](absl::Status status) {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->result = std::move(status);
    state->changed.notify_all();
  };
  const absl::Status started = start(finish);
  if (!started.ok()) finish(started);
  return transfer;
}

TierTransfer TierTransfer::Read(TierStore& store, const TierKey& key, DType dtype,
                                int64_t num_elements, absl::Span<uint8_t> to) {
  return Start(
      [&](const Done& done) { return store.StartRead(key, dtype, num_elements, to, done); });
}

TierTransfer& TierTransfer::operator=(TierTransfer&& other) noexcept {
  if (state_ != nullptr) state_->Await().IgnoreError();
  state_ = std::move(other.state_);
  return *this;
}

TierTransfer::~TierTransfer() {
  if (state_ != nullptr) state_->Await().IgnoreError();
}

absl::Status TierTransfer::State::Await() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return result.has_value(); });
  return *result;
}

bool TierTransfer::is_done() const {
  if (state_ == nullptr) return true;
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->result.has_value();
}

absl::Status TierTransfer::Wait(TierCounts& counts) {
  if (state_ == nullptr) return absl::OkStatus();
  if (!is_done()) {
    const TierWait wait(counts);
    state_->Await().IgnoreError();
  }
  return std::exchange(state_, nullptr)->Await();
}

}  // namespace tessera
