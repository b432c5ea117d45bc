#include "kernels/tensor.h"

#include <cstdlib>

#include "absl/base/internal/raw_logging.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace tessera {

Shape::Shape(std::initializer_list<int64_t> dims) {
  if (dims.size() > kMaxDims) ABSL_RAW_LOG(FATAL, "shape with %zu dims", dims.size());
  for (int64_t dim : dims) dims_[num_dims_++] = dim;
}

int64_t Shape::num_elements() const {
  int64_t count = 1;
  for (int i = 0; i < num_dims_; ++i) count *= dims_[i];
  return count;
}

std::string Shape::ToString() const {
  return absl::StrCat("(", absl::StrJoin(absl::MakeSpan(dims_.data(), num_dims_), ", "), ")");
}

Tensor Tensor::Reshape(Shape shape) const {
  if (!is_contiguous() || shape.num_elements() != num_elements()) {
    ABSL_RAW_LOG(FATAL, "cannot reshape %s to %s", ToString().c_str(), shape.ToString().c_str());
  }
  return Tensor(device_, dtype_, shape, address_);
}

Tensor Tensor::Slice(int64_t begin_elements, int64_t count_elements) const {
  if (!is_contiguous() || begin_elements < 0 || count_elements < 0 ||
      begin_elements + count_elements > num_elements()) {
    ABSL_RAW_LOG(FATAL, "slice [%ld, +%ld) out of %s", static_cast<long>(begin_elements),
                 static_cast<long>(count_elements), ToString().c_str());
  }
  return Tensor(device_, dtype_, Shape{count_elements},
                address_ + begin_elements * DTypeSizeBytes(dtype_));
}

Tensor Tensor::Columns(int64_t begin, int64_t count) const {
  if (begin < 0 || count < 0 || begin + count > shape_.last_dim()) {
    ABSL_RAW_LOG(FATAL, "columns [%ld, +%ld) out of %s", static_cast<long>(begin),
                 static_cast<long>(count), ToString().c_str());
  }
  return Tensor(device_, dtype_, Shape{shape_.num_rows(), count},
                address_ + begin * DTypeSizeBytes(dtype_), row_stride_);
}

Tensor Tensor::Rows(int64_t begin, int64_t count) const {
  if (begin < 0 || count < 0 || begin + count > shape_.num_rows()) {
    ABSL_RAW_LOG(FATAL, "rows [%ld, +%ld) out of %s", static_cast<long>(begin),
                 static_cast<long>(count), ToString().c_str());
  }
  return Tensor(device_, dtype_, Shape{count, shape_.last_dim()},
                address_ + begin * row_stride_ * DTypeSizeBytes(dtype_), row_stride_);
}

std::string Tensor::ToString() const {
  return absl::StrCat(DTypeName(dtype_), " ", shape_.ToString(),
                      is_contiguous() ? "" : absl::StrCat(" row_stride ", row_stride_));
}

}  // namespace tessera
