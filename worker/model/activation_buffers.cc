#include "worker/model/activation_buffers.h"

namespace tessera {

Tensor ActivationBuffers::New(DType dtype, Shape shape, absl::string_view what,
                              MemoryCategory category) {
  if (!status_.ok()) return Tensor();
  absl::StatusOr<DeviceBuffer> buffer =
      device_->Allocate(shape.num_elements() * DTypeSizeBytes(dtype), category, what);
  if (!buffer.ok()) {
    status_ = buffer.status();
    return Tensor();
  }
  buffers_.push_back(*std::move(buffer));
  return buffers_.back().View(dtype, shape);
}

}  // namespace tessera
