// A device's memory as the host sees it.
#ifndef TESSERA_WORKER_OFFLOAD_HOST_VIEW_H_
#define TESSERA_WORKER_OFFLOAD_HOST_VIEW_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// The same elements as a tensor of `host`, a CPU device, so that its kernels read and write them
// where they are. UNIMPLEMENTED for a device whose memory the host does not see.
inline absl::StatusOr<Tensor> HostView(const Tensor& tensor, Device& host) {
  if (tensor.device()->kind() != DeviceKind::kCpu) {
    return absl::UnimplementedError(absl::StrCat("offloading from ", tensor.device()->name(),
                                                 ": only devices of kind cpu can offload"));
  }
  return Tensor(&host, tensor.dtype(), tensor.shape(), tensor.address(), tensor.row_stride());
}

// Address of a tensor of a CPU device.
inline void* HostAddress(const Tensor& tensor) { return reinterpret_cast<void*>(tensor.address()); }

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_HOST_VIEW_H_
