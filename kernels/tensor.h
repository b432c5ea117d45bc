// A tensor is a shape, a dtype, a device and an opaque address.
//
// Only kernels/, storage/ and worker/comm/ may look behind the address; everything else copies in
// and out through Device. The address is never dereferenced on the host for a CUDA device.
#ifndef TESSERA_KERNELS_TENSOR_H_
#define TESSERA_KERNELS_TENSOR_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/dtype.h"

namespace tessera {

class Device;

// Up to four dims, row-major. An empty shape is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxDims = 4;

  Shape() = default;
  // REQUIRES: at most kMaxDims dims, each >= 0.
  Shape(std::initializer_list<int64_t> dims);

  int num_dims() const { return num_dims_; }
  // REQUIRES: 0 <= i < num_dims().
  int64_t dim(int i) const { return dims_[i]; }
  int64_t last_dim() const { return num_dims_ == 0 ? 1 : dims_[num_dims_ - 1]; }
  int64_t num_elements() const;
  // Product of all dims but the last: the tensor seen as a matrix has this many rows.
  int64_t num_rows() const { return last_dim() == 0 ? 0 : num_elements() / last_dim(); }
  // "(2, 3, 4)"
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxDims> dims_ = {};
  int num_dims_ = 0;
};

// A view; owns nothing (DeviceBuffer owns). Copyable, immutable after construction. Elements of the
// last dim are adjacent; consecutive rows are row_stride elements apart (the leading dimension).
class Tensor {
 public:
  Tensor() = default;
  Tensor(Device* device, DType dtype, Shape shape, uint64_t address)
      : Tensor(device, dtype, shape, address, shape.last_dim()) {}
  Tensor(Device* device, DType dtype, Shape shape, uint64_t address, int64_t row_stride_elements)
      : device_(device),
        dtype_(dtype),
        shape_(shape),
        address_(address),
        row_stride_(row_stride_elements) {}

  Device* device() const { return device_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  uint64_t address() const { return address_; }
  int64_t row_stride() const { return row_stride_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t size_bytes() const { return num_elements() * DTypeSizeBytes(dtype_); }
  bool is_contiguous() const { return row_stride_ == shape_.last_dim() || shape_.num_rows() <= 1; }
  bool is_null() const { return device_ == nullptr; }

  // The same elements under another shape. REQUIRES: contiguous, equal num_elements.
  Tensor Reshape(Shape shape) const;
  // Elements [begin, begin + count) as a vector. REQUIRES: contiguous and in range.
  Tensor Slice(int64_t begin_elements, int64_t count_elements) const;
  // Columns [begin, begin + count) of every row; keeps row_stride. REQUIRES: in range.
  Tensor Columns(int64_t begin, int64_t count) const;
  // Rows [begin, begin + count) of the tensor seen as a matrix; keeps row_stride. REQUIRES: in
  // range.
  Tensor Rows(int64_t begin, int64_t count) const;
  // "float32 (2, 3)"
  std::string ToString() const;

 private:
  Device* device_ = nullptr;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
  uint64_t address_ = 0;
  int64_t row_stride_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_TENSOR_H_
