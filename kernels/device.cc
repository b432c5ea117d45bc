#include "kernels/device.h"

#include <utility>

#include "absl/base/internal/raw_logging.h"

namespace tessera {

const char* DeviceKindName(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this != &other) {
    Release();
    device_ = std::exchange(other.device_, nullptr);
    offset_bytes_ = other.offset_bytes_;
    size_bytes_ = other.size_bytes_;
  }
  return *this;
}

Tensor DeviceBuffer::View(DType dtype, Shape shape, int64_t byte_offset) const {
  if (device_ == nullptr || byte_offset < 0 ||
      byte_offset + shape.num_elements() * DTypeSizeBytes(dtype) > size_bytes_) {
    ABSL_RAW_LOG(FATAL, "view %s %s at byte %ld outside a buffer of %ld bytes", DTypeName(dtype),
                 shape.ToString().c_str(), static_cast<long>(byte_offset),
                 static_cast<long>(size_bytes_));
  }
  return Tensor(device_, dtype, shape, device_->base_address() + offset_bytes_ + byte_offset);
}

void DeviceBuffer::Release() {
  if (Device* device = std::exchange(device_, nullptr)) device->arena().Free(offset_bytes_);
}

absl::StatusOr<DeviceBuffer> Device::Allocate(int64_t size_bytes, MemoryCategory category,
                                              absl::string_view what) {
  absl::StatusOr<int64_t> offset = arena().Allocate(size_bytes, category, what);
  if (!offset.ok()) return offset.status();
  return DeviceBuffer(this, *offset, size_bytes);
}

}  // namespace tessera
