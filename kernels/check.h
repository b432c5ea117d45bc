// Argument checks shared by the operation families: every message names operation and argument.
#ifndef TESSERA_KERNELS_CHECK_H_
#define TESSERA_KERNELS_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Collects the first failure of a chain of checks; INVALID_ARGUMENT. Used by one thread.
class ArgumentChecks {
 public:
  // operation names the caller in messages; tensors must be on the stream's device.
  ArgumentChecks(absl::string_view operation, const Stream& stream)
      : operation_(operation), stream_(stream) {}

  // dtype and shape are exactly these; elements of the last dim adjacent, rows at any stride.
  ArgumentChecks& Rows(absl::string_view name, const Tensor& tensor, DType dtype, Shape shape);
  // As Rows, and contiguous.
  ArgumentChecks& Dense(absl::string_view name, const Tensor& tensor, DType dtype, Shape shape);
  // The tensor's dtype is fp32, bf16 or fp16.
  ArgumentChecks& Floating(absl::string_view name, const Tensor& tensor);
  // As Dense, for an output that is added to: its dtype is `dtype` or fp32.
  ArgumentChecks& Accumulated(absl::string_view name, const Tensor& tensor, DType dtype,
                              Shape shape);
  ArgumentChecks& That(bool condition, absl::string_view message);
  const absl::Status& status() const { return status_; }

 private:
  const absl::string_view operation_;
  const Stream& stream_;
  absl::Status status_;
};

// UNIMPLEMENTED: the operation has no implementation for this device in this build.
absl::Status NoBackend(absl::string_view operation, const Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CHECK_H_
