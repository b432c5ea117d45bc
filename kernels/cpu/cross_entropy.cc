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

// REQUIRES: count >= 1.
template <typename S>
float RowMax(const S* row, int64_t count) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  float max = ToFloat(row[0]);
  int64_t j = 0;
  if (count >= lanes) {
    FloatVec maxima = LoadFull(d, row);
    for (j = lanes; j + lanes <= count; j += lanes) {
      maxima = hn::Max(maxima, LoadFull(d, row + j));
    }
    max = hn::GetLane(hn::MaxOfLanes(d, maxima));
  }
  for (; j < count; ++j) max = HWY_MAX(max, ToFloat(row[j]));
  return max;
}

// Sum of exp(row - max). With terms, which may be row, they are stored there.
template <typename S>
double RowExpSum(const S* row, int64_t count, float max, float* terms) {
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
      const FloatVec e = hn::Exp(d, hn::Sub(LoadFull(d, row + j), maxima));
      if (terms != nullptr) hn::StoreU(e, d, terms + j);
      sum = hn::Add(sum, e);
    }
    total += Sum(d, sum);
    if (j < end) {
      HWY_ALIGN float tail[hn::MaxLanes(FloatTag())];
      hn::Store(hn::Exp(d, hn::Sub(LoadUpTo(d, row + j, end - j), maxima)), d, tail);
      for (int64_t i = j; i < end; ++i) {
        if (terms != nullptr) terms[i] = tail[i - j];
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

// row = factor * exp(row - shift), less scale at target (none: -1); each element is rounded once.
template <typename S>
void GradientRow(S* row, int64_t count, float shift, float factor, int64_t target, float scale) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec shifts = hn::Set(d, shift), factors = hn::Set(d, factor);
  const float logit = target < 0 ? 0 : ToFloat(row[target]);
  for (int64_t j = 0; j < count; j += lanes) {
    const FloatVec e = hn::Exp(d, hn::Sub(LoadUpTo(d, row + j, count - j), shifts));
    StoreUpTo(d, hn::Mul(e, factors), row + j, count - j);
  }
  if (target < 0) return;
  const FloatVec e = hn::Exp(d, hn::Sub(hn::Set(d, logit), shifts));
  FromFloat(hn::GetLane(hn::Mul(e, factors)) - scale, row + target);
}

template <typename S>
void ClearRow(S* row, int64_t begin, int64_t end) {
  std::memset(row + begin, 0, (end - begin) * sizeof(S));
}

// fp32 keeps the terms in place of the logits, so that each exp is taken once.
void RowGradient(float* row, int64_t classes, float max, int32_t target, float scale, double* sum) {
  *sum = RowExpSum(row, classes, max, row);
  ScaleRow(row, classes, static_cast<float>(scale / *sum));
  row[target] -= scale;
}

template <typename S>
void RowGradient(S* row, int64_t classes, float max, int32_t target, float scale, double* sum) {
  *sum = RowExpSum(row, classes, max, nullptr);
  GradientRow(row, classes, max, static_cast<float>(scale / *sum), target, scale);
}

// One row with target >= 0; returns its loss.
template <typename S>
float RowLoss(S* row, int64_t classes, int64_t columns, int32_t target, float scale,
              bool overwrite) {
  const float max = RowMax(row, classes);
  const double logit = ToFloat(row[target]);
  double sum;
  if (overwrite) {
    RowGradient(row, classes, max, target, scale, &sum);
    ClearRow(row, classes, columns);
  } else {
    sum = RowExpSum(row, classes, max, nullptr);
  }
  return static_cast<float>(std::log(sum) + (max - logit));
}

float LossRow(DType dtype, void* row, int64_t classes, int64_t columns, int32_t target, float scale,
              bool overwrite) {
  return WithElement(dtype, [&](auto s) HWY_ATTR {
    return RowLoss(static_cast<decltype(s)*>(row), classes, columns, target, scale, overwrite);
  });
}

// target is a column, or -1.
void StatisticsRow(DType dtype, const void* logits, int64_t classes, int64_t target, float* max,
                   float* exp_sum, float* target_logit) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    const auto* row = static_cast<const decltype(s)*>(logits);
    *max = classes == 0 ? -HUGE_VALF : RowMax(row, classes);
    *exp_sum = static_cast<float>(RowExpSum(row, classes, *max, nullptr));
    *target_logit = target < 0 ? 0 : ToFloat(row[target]);
  });
}

void SliceGradientRow(DType dtype, void* logits, int64_t classes, int64_t columns,
                      float log_sum_exp, int64_t target, float scale) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    auto* row = static_cast<decltype(s)*>(logits);
    GradientRow(row, classes, log_sum_exp, scale, target, scale);
    ClearRow(row, classes, columns);
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(LossRow);
HWY_EXPORT(StatisticsRow);
HWY_EXPORT(SliceGradientRow);

namespace cpu {
namespace {

constexpr int64_t kRowBlock = 16;

absl::Status CheckTargets(const Tensor& targets, int64_t num_classes) {
  const int32_t* target = Data<const int32_t>(targets);
  for (int64_t i = 0; i < targets.num_elements(); ++i) {
    if (target[i] < -1 || target[i] >= num_classes) {
      return absl::InvalidArgumentError(absl::StrCat("cross_entropy: target ", target[i],
                                                     " at row ", i, " is outside [-1, ",
                                                     num_classes, ")"));
    }
  }
  return absl::OkStatus();
}

// Calls body(row, target) for every row.
template <typename Body>
void ForRows(int num_threads, const Tensor& targets, const Body& body) {
  ParallelForBlocks(num_threads, targets.num_elements(), kRowBlock,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        body(i, Data<const int32_t>(targets)[i]);
                      }
                    });
}

// Column of a class in the slice; -1 where it is none of it.
int64_t SliceColumn(const VocabularySlice& slice, int32_t target) {
  const int64_t column = target - slice.first_class;
  return target >= 0 && column >= 0 && column < slice.slice_classes ? column : -1;
}

void ClearRow(const Tensor& tensor, int64_t row) {
  std::memset(Row(tensor, row), 0, tensor.shape().last_dim() * DTypeSizeBytes(tensor.dtype()));
}

}  // namespace

absl::Status CrossEntropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options, const Tensor& losses,
                          int num_threads) {
  absl::Status status = CheckTargets(targets, options.num_classes);
  if (!status.ok()) return status;
  ForRows(num_threads, targets, [&](int64_t i, int32_t target) {
    float loss = 0;
    if (target >= 0) {
      loss = HWY_DYNAMIC_DISPATCH(LossRow)(logits.dtype(), Row(logits, i), options.num_classes,
                                           logits.shape().last_dim(), target,
                                           options.gradient_scale, options.overwrite_logits);
    } else if (options.overwrite_logits) {
      ClearRow(logits, i);
    }
    Data<float>(losses)[i] = loss;
  });
  return absl::OkStatus();
}

absl::Status CrossEntropyStatistics(const Tensor& logits, const Tensor& targets,
                                    int64_t num_classes, const VocabularySlice& slice,
                                    const Tensor& row_max, const Tensor& exp_sum,
                                    const Tensor& target_logit, int num_threads) {
  absl::Status status = CheckTargets(targets, num_classes);
  if (!status.ok()) return status;
  ForRows(num_threads, targets, [&](int64_t i, int32_t target) {
    HWY_DYNAMIC_DISPATCH(StatisticsRow)
    (logits.dtype(), Row(logits, i), slice.slice_classes, SliceColumn(slice, target),
     Data<float>(row_max) + i, Data<float>(exp_sum) + i, Data<float>(target_logit) + i);
  });
  return absl::OkStatus();
}

absl::Status CombineCrossEntropy(const Tensor& row_max, const Tensor& exp_sum,
                                 const Tensor& target_logit, const Tensor& targets,
                                 const Tensor& log_sum_exp, const Tensor& losses, int num_threads) {
  const int64_t slices = row_max.shape().num_rows(), m = row_max.shape().last_dim();
  ForRows(num_threads, targets, [&](int64_t i, int32_t target) {
    const float* maxima = Data<const float>(row_max) + i;
    float max = maxima[0];
    for (int64_t r = 1; r < slices; ++r) max = std::max(max, maxima[r * m]);
    double sum = 0, logit = 0;
    for (int64_t r = 0; r < slices; ++r) {
      sum += Data<const float>(exp_sum)[r * m + i] *
             std::exp(static_cast<double>(maxima[r * m]) - static_cast<double>(max));
      logit += Data<const float>(target_logit)[r * m + i];
    }
    const double total = std::log(sum) + max;
    Data<float>(log_sum_exp)[i] = static_cast<float>(total);
    Data<float>(losses)[i] = target < 0 ? 0 : static_cast<float>(total - logit);
  });
  return absl::OkStatus();
}

absl::Status CrossEntropyGradient(const Tensor& logits, const Tensor& targets,
                                  const CrossEntropyOptions& options, const VocabularySlice& slice,
                                  const Tensor& log_sum_exp, int num_threads) {
  absl::Status status = CheckTargets(targets, options.num_classes);
  if (!status.ok()) return status;
  ForRows(num_threads, targets, [&](int64_t i, int32_t target) {
    if (target < 0) return ClearRow(logits, i);
    HWY_DYNAMIC_DISPATCH(SliceGradientRow)
    (logits.dtype(), Row(logits, i), slice.slice_classes, logits.shape().last_dim(),
     Data<const float>(log_sum_exp)[i], SliceColumn(slice, target), options.gradient_scale);
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
