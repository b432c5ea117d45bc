// Device memory of one object, taken at its creation and held.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_DEVICE_TENSORS_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_DEVICE_TENSORS_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Owns the memory of the tensors it hands out. Errors are collected, so that a creator can ask for
// many and check once: after an error every tensor is null.
class DeviceTensors {
 public:
  explicit DeviceTensors(Device& device) : device_(&device) {}

  Tensor New(DType dtype, Shape shape, absl::string_view what,
             MemoryCategory category = MemoryCategory::kCommunication) {
    if (!status_.ok()) return Tensor();
    absl::StatusOr<DeviceBuffer> buffer =
        device_->Allocate(shape.num_elements() * DTypeSizeBytes(dtype), category, what);
    status_ = buffer.status();
    if (!status_.ok()) return Tensor();
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().View(dtype, shape);
  }
  // For AttentionForward and AttentionBackward of this shape, and of any with fewer keys.
  Tensor NewWorkspace(const AttentionShape& shape, DType dtype) {
    return New(DType::kUInt8, {AttentionWorkspaceBytes(shape, *device_, dtype)},
               "context attention workspace", MemoryCategory::kWorkspace);
  }
  // The first failure.
  const absl::Status& status() const { return status_; }

 private:
  Device* device_;
  std::vector<DeviceBuffer> buffers_;
  absl::Status status_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_DEVICE_TENSORS_H_
