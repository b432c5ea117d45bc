// A few host buffers of one size through which state passes on its way from and to the nvme tier.
#ifndef TESSERA_WORKER_OFFLOAD_TIER_BUFFERS_H_
#define TESSERA_WORKER_OFFLOAD_TIER_BUFFERS_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

class TierBuffers;

// One of the buffers, given back by the destructor. Move-only; the buffers outlive it.
class TierBuffer {
 public:
  TierBuffer() = default;
  TierBuffer(TierBuffer&& other) noexcept { *this = std::move(other); }
  TierBuffer& operator=(TierBuffer&& other) noexcept {
    Release();
    owner_ = std::exchange(other.owner_, nullptr);
    index_ = other.index_;
    return *this;
  }
  ~TierBuffer() { Release(); }

  bool is_null() const { return owner_ == nullptr; }
  // REQUIRES: not null, and the elements lie inside of the buffer.
  Tensor View(DType dtype, Shape shape, int64_t byte_offset = 0) const;
  absl::Span<uint8_t> bytes() const;
  void Release();

 private:
  friend class TierBuffers;
  TierBuffer(TierBuffers* owner, int index) : owner_(owner), index_(index) {}

  TierBuffers* owner_ = nullptr;
  int index_ = 0;
};

// Thread-safe.
class TierBuffers {
 public:
  // RESOURCE_EXHAUSTED from the host's pool. host outlives the buffers.
  static absl::StatusOr<std::unique_ptr<TierBuffers>> Create(int count, int64_t buffer_bytes,
                                                             Device& host);
  // Waits for all of them.
  ~TierBuffers();

  int count() const { return count_; }
  int64_t buffer_bytes() const { return buffer_bytes_; }
  // Waits for a free one.
  TierBuffer Acquire();
  // Null: none is free.
  TierBuffer TryAcquire();
  // Until all are free: what was being read or written is done.
  void WaitForAll();

 private:
  friend class TierBuffer;
  // Buffers start at whole pages, as direct IO asks.
  static constexpr int64_t kPageBytes = 4096;

  TierBuffers(int count, int64_t buffer_bytes) : count_(count), buffer_bytes_(buffer_bytes) {}
  void Release(int index);

  const int count_;
  const int64_t buffer_bytes_;
  DeviceBuffer memory_;
  int64_t first_byte_ = 0;  // of memory_, at a page
  std::mutex mutex_;
  std::condition_variable released_;
  std::vector<int> free_;  // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_TIER_BUFFERS_H_
