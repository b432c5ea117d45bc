#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_merge.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// output = keep * output + add * partial; with keep 0, output is not read.
template <typename S>
void MixElements(const S* partial, float keep, float add, int64_t count, float* output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec factor = hn::Set(d, add), kept = hn::Set(d, keep);
  for (int64_t c = 0; c < count; c += lanes) {
    const int64_t left = count - c;
    FloatVec sum = hn::Mul(factor, LoadUpTo(d, partial + c, left));
    if (keep != 0) sum = hn::MulAdd(kept, LoadUpTo(d, output + c, left), sum);
    StoreUpTo(d, sum, output + c, left);
  }
}

void MixRow(DType dtype, const void* partial, float keep, float add, int64_t count, float* output) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    MixElements(static_cast<const decltype(s)*>(partial), keep, add, count, output);
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(MixRow);

namespace cpu {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int64_t kRowBlock = 16;

}  // namespace

absl::Status MergeAttention(const Tensor& partial, const Tensor& partial_log_sum_exp,
                            int64_t query_rows, const Tensor& output, const Tensor& log_sum_exp,
                            int num_threads) {
  const Shape& sums = log_sum_exp.shape();
  const int64_t batch = sums.dim(0), heads = sums.dim(1), time = sums.dim(2);
  const int64_t size = output.shape().last_dim() / heads;
  const auto mix = HWY_DYNAMIC_DISPATCH(MixRow);
  ParallelForBlocks(num_threads, batch * time, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / time, t = i % time, row = b * query_rows + t;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t sums_row = b * heads + head;
        const float added = static_cast<const float*>(Row(partial_log_sum_exp, sums_row))[t];
        float& sum = static_cast<float*>(Row(log_sum_exp, sums_row))[t];
        if (added == kNothing) continue;
        const void* from = At(partial, row * partial.row_stride() + head * size);
        float* to = Data<float>(output) + row * output.row_stride() + head * size;
        if (sum == kNothing) {
          mix(partial.dtype(), from, 0, 1, size, to);
          sum = added;
          continue;
        }
        const float max = std::max(sum, added);
        const float keep = std::exp(sum - max), add = std::exp(added - max);
        mix(partial.dtype(), from, keep / (keep + add), add / (keep + add), size, to);
        sum = max + std::log(keep + add);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
