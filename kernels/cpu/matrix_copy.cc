#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matrix_copy.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

void ConvertRow(DType from, DType to, const void* input, int64_t count, void* output) {
  WithElement(from, [&](auto s) HWY_ATTR {
    WithElement(to, [&](auto t) HWY_ATTR {
      const FloatTag d;
      const int64_t lanes = hn::Lanes(d);
      const auto* source = static_cast<const decltype(s)*>(input);
      auto* target = static_cast<decltype(t)*>(output);
      for (int64_t c = 0; c < count; c += lanes) {
        StoreUpTo(d, LoadUpTo(d, source + c, count - c), target + c, count - c);
      }
    });
  });
}

void AddRow(DType dtype, const void* input, int64_t count, float* sum) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    const FloatTag d;
    const int64_t lanes = hn::Lanes(d);
    const auto* row = static_cast<const decltype(s)*>(input);
    for (int64_t c = 0; c < count; c += lanes) {
      const int64_t left = count - c;
      StoreUpTo(d, hn::Add(LoadUpTo(d, sum + c, left), LoadUpTo(d, row + c, left)), sum + c, left);
    }
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(ConvertRow);
HWY_EXPORT(AddRow);

namespace cpu {
namespace {

constexpr int64_t kBlockElements = 8192;

// Calls body(row) for every row; a thread takes blocks of about kBlockElements.
template <typename Body>
void ForRows(int num_threads, const Shape& shape, const Body& body) {
  if (shape.num_elements() == 0) return;
  const int64_t block = std::max<int64_t>(1, kBlockElements / shape.last_dim());
  ParallelForBlocks(num_threads, shape.dim(0), block, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace

absl::Status CopyMatrix(const Tensor& from, const Tensor& to, int num_threads) {
  const int64_t columns = from.shape().last_dim();
  const int64_t row_bytes = columns * DTypeSizeBytes(from.dtype());
  ForRows(num_threads, from.shape(), [&](int64_t row) {
    if (from.dtype() == to.dtype()) {
      std::memcpy(Row(to, row), Row(from, row), row_bytes);
    } else {
      HWY_DYNAMIC_DISPATCH(ConvertRow)
      (from.dtype(), to.dtype(), Row(from, row), columns, Row(to, row));
    }
  });
  return absl::OkStatus();
}

absl::Status AddInto(const Tensor& input, const Tensor& sum, int num_threads) {
  ForRows(num_threads, input.shape(), [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(AddRow)
    (input.dtype(), Row(input, row), input.shape().last_dim(), static_cast<float*>(Row(sum, row)));
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
