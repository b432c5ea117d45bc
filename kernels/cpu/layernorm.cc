#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layernorm.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// One row; two passes, so that the variance loses no digits to the mean.
template <typename S>
void NormalizeRow(const S* x, const S* weight, const S* bias, float epsilon, int64_t channels, S* y,
                  float* mean_out, float* rstd_out) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  FloatVec sum = hn::Zero(d);
  for (int64_t c = 0; c < channels; c += lanes) {
    sum = hn::Add(sum, LoadUpTo(d, x + c, channels - c));
  }
  const float mean = Sum(d, sum) / static_cast<float>(channels);
  const FloatVec means = hn::Set(d, mean);
  FloatVec squares = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    const FloatVec centered = hn::Sub(LoadFull(d, x + c), means);
    squares = hn::MulAdd(centered, centered, squares);
  }
  float variance = Sum(d, squares);
  for (; c < channels; ++c) variance += (ToFloat(x[c]) - mean) * (ToFloat(x[c]) - mean);
  variance /= static_cast<float>(channels);
  const float rstd = 1.0f / std::sqrt(variance + epsilon);
  const FloatVec rstds = hn::Set(d, rstd);
  for (c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    const FloatVec normal = hn::Mul(hn::Sub(LoadUpTo(d, x + c, left), means), rstds);
    StoreUpTo(d, hn::MulAdd(normal, LoadUpTo(d, weight + c, left), LoadUpTo(d, bias + c, left)),
              y + c, left);
  }
  *mean_out = mean;
  *rstd_out = rstd;
}

// dx = addend + rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight.
template <typename S>
void InputGradientRow(const S* dy, const S* x, const S* weight, float mean, float rstd,
                      const S* addend, int64_t channels, S* dx) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec means = hn::Set(d, mean), rstds = hn::Set(d, rstd);
  FloatVec sum = hn::Zero(d), product = hn::Zero(d);
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    // Lanes past the end hold g = 0 and add nothing.
    const FloatVec g = hn::Mul(LoadUpTo(d, dy + c, left), LoadUpTo(d, weight + c, left));
    const FloatVec normal = hn::Mul(hn::Sub(LoadUpTo(d, x + c, left), means), rstds);
    sum = hn::Add(sum, g);
    product = hn::MulAdd(g, normal, product);
  }
  const FloatVec a = hn::Set(d, Sum(d, sum) / static_cast<float>(channels));
  const FloatVec b = hn::Set(d, Sum(d, product) / static_cast<float>(channels));
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    const FloatVec g = hn::Mul(LoadUpTo(d, dy + c, left), LoadUpTo(d, weight + c, left));
    const FloatVec normal = hn::Mul(hn::Sub(LoadUpTo(d, x + c, left), means), rstds);
    FloatVec gradient = hn::Mul(rstds, hn::NegMulAdd(normal, b, hn::Sub(g, a)));
    if (addend != nullptr) gradient = hn::Add(gradient, LoadUpTo(d, addend + c, left));
    StoreUpTo(d, gradient, dx + c, left);
  }
}

// Columns [begin, end) of d_weight and d_bias, over all rows in ascending order, 128 at a time so
// that error grows with m / 128.
template <typename S, typename G>
void ParameterGradientColumns(const S* dy, const S* x, const float* mean, const float* rstd,
                              int64_t m, int64_t channels, int64_t begin, int64_t end, G* d_weight,
                              G* d_bias) {
  constexpr int64_t kRows = 128;
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t c = begin; c < end; c += lanes) {
    const int64_t left = end - c;
    FloatVec weight_total = LoadUpTo(d, d_weight + c, left);
    FloatVec bias_total = LoadUpTo(d, d_bias + c, left);
    for (int64_t row = 0; row < m; row += kRows) {
      FloatVec weight_sum = hn::Zero(d), bias_sum = hn::Zero(d);
      for (int64_t i = row; i < HWY_MIN(m, row + kRows); ++i) {
        const FloatVec g = LoadUpTo(d, dy + i * channels + c, left);
        const FloatVec centered =
            hn::Sub(LoadUpTo(d, x + i * channels + c, left), hn::Set(d, mean[i]));
        bias_sum = hn::Add(bias_sum, g);
        weight_sum = hn::MulAdd(g, hn::Mul(centered, hn::Set(d, rstd[i])), weight_sum);
      }
      weight_total = hn::Add(weight_total, weight_sum);
      bias_total = hn::Add(bias_total, bias_sum);
    }
    StoreUpTo(d, weight_total, d_weight + c, left);
    StoreUpTo(d, bias_total, d_bias + c, left);
  }
}

void NormalizeRows(DType dtype, const void* x, const void* weight, const void* bias, float epsilon,
                   int64_t rows, int64_t channels, void* y, float* mean, float* rstd) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    for (int64_t i = 0; i < rows; ++i) {
      NormalizeRow(static_cast<const S*>(x) + i * channels, static_cast<const S*>(weight),
                   static_cast<const S*>(bias), epsilon, channels,
                   static_cast<S*>(y) + i * channels, mean + i, rstd + i);
    }
  });
}

void InputGradientRows(DType dtype, const void* dy, const void* x, const void* weight,
                       const float* mean, const float* rstd, const void* addend, int64_t rows,
                       int64_t channels, void* dx) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * channels;
      InputGradientRow(static_cast<const S*>(dy) + at, static_cast<const S*>(x) + at,
                       static_cast<const S*>(weight), mean[i], rstd[i],
                       addend == nullptr ? nullptr : static_cast<const S*>(addend) + at, channels,
                       static_cast<S*>(dx) + at);
    }
  });
}

void ParameterGradients(DType dtype, DType accumulated, const void* dy, const void* x,
                        const float* mean, const float* rstd, int64_t m, int64_t channels,
                        int64_t begin, int64_t end, void* d_weight, void* d_bias) {
  WithElements(dtype, accumulated, [&](auto s, auto g) HWY_ATTR {
    using S = decltype(s);
    using G = decltype(g);
    ParameterGradientColumns(static_cast<const S*>(dy), static_cast<const S*>(x), mean, rstd, m,
                             channels, begin, end, static_cast<G*>(d_weight),
                             static_cast<G*>(d_bias));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(NormalizeRows);
HWY_EXPORT(InputGradientRows);
HWY_EXPORT(ParameterGradients);

namespace cpu {
namespace {
constexpr int64_t kRowBlock = 32;
constexpr int64_t kColumnBlock = 64;
}  // namespace

absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, int num_threads) {
  const int64_t m = input.shape().num_rows(), channels = input.shape().last_dim();
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormalizeRows)
    (input.dtype(), Row(input, begin), At(weight, 0), At(bias, 0), epsilon, end - begin, channels,
     Row(output, begin), Data<float>(mean) + begin, Data<float>(rstd) + begin);
  });
  return absl::OkStatus();
}

absl::Status LayerNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                               const Tensor& d_input, const Tensor& d_weight, const Tensor& d_bias,
                               int num_threads) {
  const int64_t m = input.shape().num_rows(), channels = input.shape().last_dim();
  const float* means = Data<const float>(mean);
  const float* rstds = Data<const float>(rstd);
  // First, as d_input may overwrite d_output.
  ParallelForBlocks(num_threads, channels, kColumnBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ParameterGradients)
    (input.dtype(), d_weight.dtype(), At(d_output, 0), At(input, 0), means, rstds, m, channels,
     begin, end, At(d_weight, 0), At(d_bias, 0));
  });
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(InputGradientRows)
    (input.dtype(), Row(d_output, begin), Row(input, begin), At(weight, 0), means + begin,
     rstds + begin, addend.is_null() ? nullptr : Row(addend, begin), end - begin, channels,
     Row(d_input, begin));
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
