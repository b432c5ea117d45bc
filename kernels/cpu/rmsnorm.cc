#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rmsnorm.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// y = S(S(x * rstd) * weight).
template <typename S>
void RmsNormRow(const S* x, const S* weight, float epsilon, int64_t channels, S* y,
                float* rstd_out) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  FloatVec squares = hn::Zero(d);
  for (int64_t c = 0; c < channels; c += lanes) {
    const FloatVec v = LoadUpTo(d, x + c, channels - c);
    squares = hn::MulAdd(v, v, squares);
  }
  const float rstd = 1.0f / std::sqrt(Sum(d, squares) / static_cast<float>(channels) + epsilon);
  const FloatVec rstds = hn::Set(d, rstd);
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    const FloatVec normal = RoundTo<S>(d, hn::Mul(LoadUpTo(d, x + c, left), rstds));
    StoreUpTo(d, hn::Mul(normal, LoadUpTo(d, weight + c, left)), y + c, left);
  }
  *rstd_out = rstd;
}

// dx = addend + rstd * (g - xhat * mean(g * xhat)), g = dy * weight, xhat = x * rstd.
template <typename S>
void RmsInputGradientRow(const S* dy, const S* x, const S* weight, float rstd, const S* addend,
                         int64_t channels, S* dx) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec rstds = hn::Set(d, rstd);
  FloatVec product = hn::Zero(d);
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    const FloatVec g = hn::Mul(LoadUpTo(d, dy + c, left), LoadUpTo(d, weight + c, left));
    product = hn::MulAdd(g, hn::Mul(LoadUpTo(d, x + c, left), rstds), product);
  }
  const FloatVec mean = hn::Set(d, Sum(d, product) / static_cast<float>(channels));
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    const FloatVec g = hn::Mul(LoadUpTo(d, dy + c, left), LoadUpTo(d, weight + c, left));
    const FloatVec normal = hn::Mul(LoadUpTo(d, x + c, left), rstds);
    FloatVec gradient = hn::Mul(rstds, hn::NegMulAdd(normal, mean, g));
    if (addend != nullptr) gradient = hn::Add(gradient, LoadUpTo(d, addend + c, left));
    StoreUpTo(d, gradient, dx + c, left);
  }
}

// Columns [begin, end) of d_weight, over all rows in ascending order, 128 at a time so that error
// grows with m / 128.
template <typename S, typename G>
void RmsWeightGradientColumns(const S* dy, const S* x, const float* rstd, int64_t m,
                              int64_t channels, int64_t begin, int64_t end, G* d_weight) {
  constexpr int64_t kRows = 128;
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t c = begin; c < end; c += lanes) {
    const int64_t left = end - c;
    FloatVec total = LoadUpTo(d, d_weight + c, left);
    for (int64_t row = 0; row < m; row += kRows) {
      FloatVec sum = hn::Zero(d);
      for (int64_t i = row; i < HWY_MIN(m, row + kRows); ++i) {
        const FloatVec scaled =
            hn::Mul(LoadUpTo(d, x + i * channels + c, left), hn::Set(d, rstd[i]));
        // As in forward: the weight's factor is the rounded value.
        sum = hn::MulAdd(LoadUpTo(d, dy + i * channels + c, left), RoundTo<S>(d, scaled), sum);
      }
      total = hn::Add(total, sum);
    }
    StoreUpTo(d, total, d_weight + c, left);
  }
}

void RmsNormRows(DType dtype, const void* x, const void* weight, float epsilon, int64_t rows,
                 int64_t channels, void* y, float* rstd) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    for (int64_t i = 0; i < rows; ++i) {
      RmsNormRow(static_cast<const S*>(x) + i * channels, static_cast<const S*>(weight), epsilon,
                 channels, static_cast<S*>(y) + i * channels, rstd + i);
    }
  });
}

void RmsInputGradients(DType dtype, const void* dy, const void* x, const void* weight,
                       const float* rstd, const void* addend, int64_t rows, int64_t channels,
                       void* dx) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * channels;
      RmsInputGradientRow(static_cast<const S*>(dy) + at, static_cast<const S*>(x) + at,
                          static_cast<const S*>(weight), rstd[i],
                          addend == nullptr ? nullptr : static_cast<const S*>(addend) + at,
                          channels, static_cast<S*>(dx) + at);
    }
  });
}

void RmsWeightGradients(DType dtype, DType accumulated, const void* dy, const void* x,
                        const float* rstd, int64_t m, int64_t channels, int64_t begin, int64_t end,
                        void* d_weight) {
  WithElements(dtype, accumulated, [&](auto s, auto g) HWY_ATTR {
    using S = decltype(s);
    using G = decltype(g);
    RmsWeightGradientColumns(static_cast<const S*>(dy), static_cast<const S*>(x), rstd, m, channels,
                             begin, end, static_cast<G*>(d_weight));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(RmsNormRows);
HWY_EXPORT(RmsInputGradients);
HWY_EXPORT(RmsWeightGradients);

namespace cpu {
namespace {
constexpr int64_t kRowBlock = 32;
constexpr int64_t kColumnBlock = 64;
}  // namespace

absl::Status RmsNormForward(const Tensor& input, const Tensor& weight, float epsilon,
                            const Tensor& output, const Tensor& rstd, int num_threads) {
  const int64_t m = input.shape().num_rows(), channels = input.shape().last_dim();
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsNormRows)
    (input.dtype(), Row(input, begin), At(weight, 0), epsilon, end - begin, channels,
     Row(output, begin), Data<float>(rstd) + begin);
  });
  return absl::OkStatus();
}

absl::Status RmsNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                             const Tensor& rstd, const Tensor& addend, const Tensor& d_input,
                             const Tensor& d_weight, int num_threads) {
  const int64_t m = input.shape().num_rows(), channels = input.shape().last_dim();
  const float* rstds = Data<const float>(rstd);
  // First, as d_input may overwrite d_output.
  ParallelForBlocks(num_threads, channels, kColumnBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsWeightGradients)
    (input.dtype(), d_weight.dtype(), At(d_output, 0), At(input, 0), rstds, m, channels, begin, end,
     At(d_weight, 0));
  });
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsInputGradients)
    (input.dtype(), Row(d_output, begin), Row(input, begin), At(weight, 0), rstds + begin,
     addend.is_null() ? nullptr : Row(addend, begin), end - begin, channels, Row(d_input, begin));
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
