#include "kernels/check.h"

#include "absl/strings/str_cat.h"

namespace tessera {

ArgumentChecks& ArgumentChecks::Rows(absl::string_view name, const Tensor& tensor, DType dtype,
                                     Shape shape) {
  if (!status_.ok()) return *this;
  if (tensor.device() != &stream_.device()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(operation_, ": ", name, " is not on device ", stream_.device().name()));
  } else if (tensor.dtype() != dtype || !(tensor.shape() == shape)) {
    status_ =
        absl::InvalidArgumentError(absl::StrCat(operation_, ": ", name, " is ", tensor.ToString(),
                                                ", not ", DTypeName(dtype), " ", shape.ToString()));
  }
  return *this;
}

ArgumentChecks& ArgumentChecks::Dense(absl::string_view name, const Tensor& tensor, DType dtype,
                                      Shape shape) {
  Rows(name, tensor, dtype, shape);
  if (status_.ok() && !tensor.is_contiguous()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(operation_, ": ", name, " ", tensor.ToString(), " is not contiguous"));
  }
  return *this;
}

ArgumentChecks& ArgumentChecks::Floating(absl::string_view name, const Tensor& tensor) {
  if (status_.ok() && !IsFloating(tensor.dtype())) {
    status_ =
        absl::InvalidArgumentError(absl::StrCat(operation_, ": ", name, " is ", tensor.ToString(),
                                                ", not of dtype float32, bfloat16 or float16"));
  }
  return *this;
}

ArgumentChecks& ArgumentChecks::Accumulated(absl::string_view name, const Tensor& tensor,
                                            DType dtype, Shape shape) {
  return Dense(name, tensor, tensor.dtype() == DType::kFloat32 ? DType::kFloat32 : dtype, shape);
}

ArgumentChecks& ArgumentChecks::That(bool condition, absl::string_view message) {
  if (status_.ok() && !condition) {
    status_ = absl::InvalidArgumentError(absl::StrCat(operation_, ": ", message));
  }
  return *this;
}

absl::Status NoBackend(absl::string_view operation, const Stream& stream) {
  return absl::UnimplementedError(absl::StrCat(
      operation, " on ", stream.device().name(), ": built without ",
      stream.device().kind() == DeviceKind::kCuda ? "CUDA"
                                                  : DeviceKindName(stream.device().kind())));
}

}  // namespace tessera
