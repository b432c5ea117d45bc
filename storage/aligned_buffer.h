// Memory for direct IO.
#ifndef TESSERA_STORAGE_ALIGNED_BUFFER_H_
#define TESSERA_STORAGE_ALIGNED_BUFFER_H_

#include <cstdint>
#include <memory>
#include <new>

#include "kernels/huge_pages.h"

namespace tessera {

// What direct IO wants of memory, offsets and sizes: at least the block size of any disk.
constexpr int64_t kDirectIoAlignment = 4096;

constexpr int64_t AlignDown(int64_t bytes) {
  return bytes / kDirectIoAlignment * kDirectIoAlignment;
}
constexpr int64_t AlignUp(int64_t bytes) { return AlignDown(bytes + kDirectIoAlignment - 1); }
inline bool IsAligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kDirectIoAlignment == 0;
}

// Owns aligned memory, uninitialised; of huge pages where it is as large as one. Move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Of at least size_bytes; rounded up.
  explicit AlignedBuffer(int64_t size_bytes)
      : size_bytes_(AlignUp(size_bytes)),
        data_(static_cast<uint8_t*>(operator new(size_bytes_, AlignmentOf(size_bytes_))),
              Free{AlignmentOf(size_bytes_)}) {
    if (size_bytes_ >= kHugePageBytes) PreferHugePages(data_.get(), size_bytes_);
  }

  uint8_t* data() const { return data_.get(); }
  int64_t size_bytes() const { return data_ == nullptr ? 0 : size_bytes_; }
  // Makes it at least so large; what it held is lost if it grows.
  void Grow(int64_t size_bytes) {
    if (this->size_bytes() < size_bytes) *this = AlignedBuffer(size_bytes);
  }

 private:
  static std::align_val_t AlignmentOf(int64_t size_bytes) {
    return std::align_val_t(size_bytes < kHugePageBytes ? kDirectIoAlignment : kHugePageBytes);
  }
  struct Free {
    Free() : Free(std::align_val_t{kDirectIoAlignment}) {}
    explicit Free(std::align_val_t alignment) : alignment(alignment) {}
    void operator()(uint8_t* data) const { operator delete(data, alignment); }
    std::align_val_t alignment;
  };
  int64_t size_bytes_ = 0;
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_ALIGNED_BUFFER_H_
