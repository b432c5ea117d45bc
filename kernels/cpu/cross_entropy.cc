#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

float RowMax(const float* row, int64_t count) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  float max = row[0];
  int64_t j = 0;
  if (count >= lanes) {
    FloatVec maxima = hn::LoadU(d, row);
    for (j = lanes; j + lanes <= count; j += lanes) {
      maxima = hn::Max(maxima, hn::LoadU(d, row + j));
    }
    max = hn::GetLane(hn::MaxOfLanes(d, maxima));
  }
  for (; j < count; ++j) max = HWY_MAX(max, row[j]);
  return max;
}

// Sum of exp(row - max); with kStore, row becomes its terms.
template <bool kStore>
double RowExpSum(float* row, int64_t count, float max) {
  constexpr int64_t kColumns = 512;
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec maxima = hn::Set(d, max);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kColumns) {
    const int64_t end = HWY_MIN(count, begin + kColumns);
    FloatVec sum = hn::Zero(d);
    int64_t j = begin;
    for (; j + lanes <= end; j += lanes) {
      const FloatVec e = hn::Exp(d, hn::Sub(hn::LoadU(d, row + j), maxima));
      if (kStore) hn::StoreU(e, d, row + j);
      sum = hn::Add(sum, e);
    }
    total += Sum(d, sum);
    if (j < end) {
      HWY_ALIGN float tail[hn::MaxLanes(FloatTag())];
      hn::Store(hn::Exp(d, hn::Sub(LoadUpTo(d, row + j, end - j), maxima)), d, tail);
      for (int64_t i = j; i < end; ++i) {
        if (kStore) row[i] = tail[i - j];
        total += tail[i - j];
      }
    }
  }
  return total;
}

void ScaleRow(float* row, int64_t count, float factor) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec factors = hn::Set(d, factor);
  for (int64_t j = 0; j < count; j += lanes) {
    StoreUpTo(d, hn::Mul(LoadUpTo(d, row + j, count - j), factors), row + j, count - j);
  }
}

// One row with target >= 0; returns its loss.
float LossRow(float* row, int64_t classes, int64_t columns, int32_t target, float scale,
              bool overwrite) {
  const float max = RowMax(row, classes);
  const double logit = row[target];
  if (!overwrite) {
    return static_cast<float>(std::log(RowExpSum<false>(row, classes, max)) + (max - logit));
  }
  const double sum = RowExpSum<true>(row, classes, max);
  ScaleRow(row, classes, static_cast<float>(scale / sum));
  row[target] -= scale;
  std::memset(row + classes, 0, (columns - classes) * sizeof(float));
  return static_cast<float>(std::log(sum) + (max - logit));
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(LossRow);

namespace cpu {

absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses,
                          int num_threads) {
  const int64_t m = logits.shape().num_rows(), columns = logits.shape().last_dim();
  const int64_t stride = logits.row_stride();
  const int32_t* target = Data<const int32_t>(targets);
  for (int64_t i = 0; i < m; ++i) {
    if (target[i] < -1 || target[i] >= options.num_classes) {
      return absl::InvalidArgumentError(absl::StrCat("cross_entropy: target ", target[i],
                                                     " at row ", i, " is outside [-1, ",
                                                     options.num_classes, ")"));
    }
  }
  constexpr int64_t kRowBlock = 16;
  const auto loss_row = HWY_DYNAMIC_DISPATCH(LossRow);
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = Data<float>(logits) + i * stride;
      float loss = 0;
      if (target[i] >= 0) {
        loss = loss_row(row, options.num_classes, columns, target[i], options.gradient_scale,
                        options.overwrite_logits);
      } else if (options.overwrite_logits) {
        std::memset(row, 0, columns * sizeof(float));
      }
      Data<float>(losses)[i] = loss;
    }
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
