// Weights or gradients outside of the device: of each unit one flat array, which comes and goes as
// a whole.
#ifndef TESSERA_WORKER_OFFLOAD_ARRAY_TIER_H_
#define TESSERA_WORKER_OFFLOAD_ARRAY_TIER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/dtype.h"
#include "kernels/tensor.h"

namespace tessera {

// Used by one thread.
class ArrayTier {
 public:
  virtual ~ArrayTier() = default;

  // Takes what an array of up to so many elements needs. RESOURCE_EXHAUSTED.
  virtual absl::Status AddUnit(int unit, const std::string& name, DType dtype,
                               int64_t elements) = 0;
  // After the last unit, before anything is stored. RESOURCE_EXHAUSTED.
  virtual absl::Status Prepare() { return absl::OkStatus(); }
  // The unit's first elements = from (contiguous, on the device), whose memory is free on return.
  virtual absl::Status Store(int unit, const Tensor& from, Stream& stream) = 0;
  // Starts to fill `to` (contiguous, on the device) with the unit's first elements, as last stored.
  // Of one unit at most one at a time.
  virtual absl::Status StartFetch(int unit, const Tensor& to, Stream& stream) = 0;
  // The unit's fetch is complete.
  virtual absl::Status FinishFetch(int unit) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_ARRAY_TIER_H_
