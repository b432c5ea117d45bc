#include "worker/offload/tier_buffers.h"

#include "kernels/status_macros.h"
#include "worker/offload/host_view.h"

namespace tessera {

Tensor TierBuffer::View(DType dtype, Shape shape, int64_t byte_offset) const {
  return owner_->memory_.View(dtype, shape,
                              owner_->first_byte_ + index_ * owner_->buffer_bytes_ + byte_offset);
}

absl::Span<uint8_t> TierBuffer::bytes() const {
  const Tensor first = View(DType::kFloat32, {owner_->buffer_bytes_ / 4});
  return {static_cast<uint8_t*>(HostAddress(first)), static_cast<size_t>(owner_->buffer_bytes_)};
}

void TierBuffer::Release() {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->Release(index_);
}

absl::StatusOr<std::unique_ptr<TierBuffers>> TierBuffers::Create(int count, int64_t buffer_bytes,
                                                                 Device& host) {
  std::unique_ptr<TierBuffers> buffers(new TierBuffers(count, buffer_bytes));
  TESSERA_ASSIGN_OR_RETURN(
      buffers->memory_, host.Allocate(count * buffer_bytes + kPageBytes,
                                      MemoryCategory::kCommunication, "buffers of the nvme tier"));
  const uint64_t address = host.base_address() + buffers->memory_.offset_bytes();
  buffers->first_byte_ = static_cast<int64_t>((kPageBytes - address % kPageBytes) % kPageBytes);
  for (int i = 0; i < count; ++i) buffers->free_.push_back(i);
  return buffers;
}

TierBuffers::~TierBuffers() { WaitForAll(); }

TierBuffer TierBuffers::Acquire() {
  std::unique_lock<std::mutex> lock(mutex_);
  released_.wait(lock, [this] { return !free_.empty(); });
  const int index = free_.back();
  free_.pop_back();
  return TierBuffer(this, index);
}

TierBuffer TierBuffers::TryAcquire() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) return TierBuffer();
  const int index = free_.back();
  free_.pop_back();
  return TierBuffer(this, index);
}

void TierBuffers::WaitForAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  released_.wait(lock, [this] { return static_cast<int>(free_.size()) == count_; });
}

void TierBuffers::Release(int index) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(index);
  released_.notify_all();
}

}  // namespace tessera
