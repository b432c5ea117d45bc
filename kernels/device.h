// A device: an arena of memory, copies in and out of it, and streams of work.
#ifndef TESSERA_KERNELS_DEVICE_H_
#define TESSERA_KERNELS_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/arena.h"
#include "kernels/tensor.h"

namespace tessera {

enum class DeviceKind : uint8_t { kCpu, kCuda };
const char* DeviceKindName(DeviceKind kind);

// A point in a stream's work. On CPU it has always passed.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the host until the work before the event is done; returns that work's error, if any.
  virtual absl::Status Synchronize() = 0;
};

// An ordered queue of work on one device. CPU streams run everything in the call. One stream is
// used by one thread at a time; different streams may be used at once.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() const = 0;
  // Blocks the host until all work queued so far is done.
  virtual absl::Status Synchronize() = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> RecordEvent() = 0;
  // Work queued later starts only after the event.
  virtual absl::Status WaitEvent(Event& event) = 0;
};

// Device memory, returned to the arena by the destructor. Move-only. The device outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device* device, int64_t offset_bytes, int64_t size_bytes)
      : device_(device), offset_bytes_(offset_bytes), size_bytes_(size_bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer() { Release(); }

  bool is_null() const { return device_ == nullptr; }
  int64_t size_bytes() const { return size_bytes_; }
  int64_t offset_bytes() const { return offset_bytes_; }
  // A view from byte_offset on. REQUIRES: not null, and the view lies inside the buffer.
  Tensor View(DType dtype, Shape shape, int64_t byte_offset = 0) const;
  void Release();

 private:
  Device* device_ = nullptr;
  int64_t offset_bytes_ = 0;
  int64_t size_bytes_ = 0;
};

// Thread-safe. All copies are ordered by the stream; the host ranges of a copy stay valid and
// unchanged until the stream has passed it (always, on CPU, when the call returns).
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  // For messages: "cpu:0".
  virtual absl::string_view name() const = 0;
  virtual Arena& arena() = 0;
  // Address of the arena's first byte, in the sense of Tensor::address().
  virtual uint64_t base_address() const = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;

  // Host -> device and device -> host; size_bytes must equal the tensor's. Contiguous tensors only.
  virtual absl::Status CopyIn(const void* host, int64_t size_bytes, const Tensor& to,
                              Stream& stream) = 0;
  virtual absl::Status CopyOut(const Tensor& from, void* host, int64_t size_bytes,
                               Stream& stream) = 0;
  // Device -> device, same dtype and number of elements, both contiguous, not overlapping.
  virtual absl::Status Copy(const Tensor& from, const Tensor& to, Stream& stream) = 0;
  // All bytes zero. Contiguous tensors only.
  virtual absl::Status SetZero(const Tensor& tensor, Stream& stream) = 0;

  // Uninitialised memory from the arena; RESOURCE_EXHAUSTED as Arena::Allocate.
  absl::StatusOr<DeviceBuffer> Allocate(int64_t size_bytes, MemoryCategory category,
                                        absl::string_view what);
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_DEVICE_H_
