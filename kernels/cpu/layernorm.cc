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
void NormalizeRow(const float* x, const float* weight, const float* bias, float epsilon,
                  int64_t channels, float* y, float* mean_out, float* rstd_out) {
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
    const FloatVec centered = hn::Sub(hn::LoadU(d, x + c), means);
    squares = hn::MulAdd(centered, centered, squares);
  }
  float variance = Sum(d, squares);
  for (; c < channels; ++c) variance += (x[c] - mean) * (x[c] - mean);
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
void InputGradientRow(const float* dy, const float* x, const float* weight, float mean, float rstd,
                      const float* addend, int64_t channels, float* dx) {
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
void ParameterGradientColumns(const float* dy, const float* x, const float* mean, const float* rstd,
                              int64_t m, int64_t channels, int64_t begin, int64_t end,
                              float* d_weight, float* d_bias) {
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

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(NormalizeRow);
HWY_EXPORT(InputGradientRow);
HWY_EXPORT(ParameterGradientColumns);

namespace cpu {
namespace {
constexpr int64_t kRowBlock = 32;
constexpr int64_t kColumnBlock = 64;
}  // namespace

absl::Status LayerNormForward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                              float epsilon, const Tensor& output, const Tensor& mean,
                              const Tensor& rstd, int num_threads) {
  const int64_t m = input.shape().num_rows(), channels = input.shape().last_dim();
  const auto normalize = HWY_DYNAMIC_DISPATCH(NormalizeRow);
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      normalize(Data<const float>(input) + i * channels, Data<const float>(weight),
                Data<const float>(bias), epsilon, channels, Data<float>(output) + i * channels,
                Data<float>(mean) + i, Data<float>(rstd) + i);
    }
  });
  return absl::OkStatus();
}

absl::Status LayerNormBackward(const Tensor& d_output, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                               const Tensor& d_input, const Tensor& d_weight, const Tensor& d_bias,
                               int num_threads) {
  const int64_t m = input.shape().num_rows(), channels = input.shape().last_dim();
  const float* dy = Data<const float>(d_output);
  const float* x = Data<const float>(input);
  const float* means = Data<const float>(mean);
  const float* rstds = Data<const float>(rstd);
  const float* add = addend.is_null() ? nullptr : Data<const float>(addend);
  // First, as d_input may overwrite d_output.
  ParallelForBlocks(num_threads, channels, kColumnBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ParameterGradientColumns)
    (dy, x, means, rstds, m, channels, begin, end, Data<float>(d_weight), Data<float>(d_bias));
  });
  const auto input_gradient = HWY_DYNAMIC_DISPATCH(InputGradientRow);
  ParallelForBlocks(num_threads, m, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      input_gradient(dy + i * channels, x + i * channels, Data<const float>(weight), means[i],
                     rstds[i], add == nullptr ? nullptr : add + i * channels, channels,
                     Data<float>(d_input) + i * channels);
    }
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
