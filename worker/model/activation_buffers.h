// Device memory of activations, taken once and held.
#ifndef TESSERA_WORKER_MODEL_ACTIVATION_BUFFERS_H_
#define TESSERA_WORKER_MODEL_ACTIVATION_BUFFERS_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Owns the buffers of the tensors it hands out. Errors are collected, so that a layer can ask for
// many tensors and its owner checks once: after an error every tensor is null.
class ActivationBuffers {
 public:
  // dtype: of what has no element type of its own.
  explicit ActivationBuffers(Device& device, DType dtype = DType::kFloat32)
      : device_(&device), dtype_(dtype) {}

  // Uninitialised; `what` names it in RESOURCE_EXHAUSTED.
  Tensor New(DType dtype, Shape shape, absl::string_view what,
             MemoryCategory category = MemoryCategory::kActivations);
  Tensor New(Shape shape, absl::string_view what) { return New(dtype_, shape, what); }
  // The first failure of New.
  const absl::Status& status() const { return status_; }
  Device& device() const { return *device_; }
  DType dtype() const { return dtype_; }

 private:
  Device* device_;
  DType dtype_;
  std::vector<DeviceBuffer> buffers_;
  absl::Status status_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_ACTIVATION_BUFFERS_H_
