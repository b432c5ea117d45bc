#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>
#include <numbers>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// One head: its halves are `half` elements each.
template <typename S>
void RotateHead(const float* cosines, const float* sines, bool inverse, int64_t half, S* x) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t j = 0; j < half; j += lanes) {
    const int64_t left = half - j;
    const FloatVec c = LoadUpTo(d, cosines + j, left), sine = LoadUpTo(d, sines + j, left);
    const FloatVec s = inverse ? hn::Neg(sine) : sine;
    const FloatVec x1 = LoadUpTo(d, x + j, left), x2 = LoadUpTo(d, x + half + j, left);
    StoreUpTo(d, hn::NegMulAdd(x2, s, hn::Mul(x1, c)), x + j, left);
    StoreUpTo(d, hn::MulAdd(x1, s, hn::Mul(x2, c)), x + half + j, left);
  }
}

void RotateRow(DType dtype, const float* table, bool inverse, int64_t head_size, int64_t columns,
               void* x) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    for (int64_t begin = 0; begin < columns; begin += head_size) {
      RotateHead(table, table + head_size / 2, inverse, head_size / 2,
                 static_cast<decltype(s)*>(x) + begin);
    }
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(RotateRow);

namespace cpu {
namespace {

float Scaled(float frequency, const Llama3RotaryScaling& scaling) {
  const float factor = static_cast<float>(scaling.factor);
  const float low = static_cast<float>(scaling.low_frequency_factor);
  const float high = static_cast<float>(scaling.high_frequency_factor);
  const float length = static_cast<float>(scaling.original_length);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > length / low) return frequency / factor;
  if (wavelength < length / high) return frequency;
  const float smooth = (length / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

std::vector<float> InverseFrequencies(const RotaryOptions& options, int64_t head_size) {
  std::vector<float> frequencies(head_size / 2);
  for (int64_t j = 0; j < head_size / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(head_size);
    frequencies[j] = 1.0f / static_cast<float>(std::pow(options.theta, exponent));
    if (options.scaling.has_value()) frequencies[j] = Scaled(frequencies[j], *options.scaling);
  }
  return frequencies;
}

}  // namespace

absl::Status RotaryTable(const RotaryOptions& options, int64_t first_position,
                         const Tensor& positions, const Tensor& table, int num_threads) {
  const int64_t half = table.shape().last_dim() / 2;
  const std::vector<float> frequencies = InverseFrequencies(options, 2 * half);
  ParallelFor(num_threads, table.shape().num_rows(), [&](int64_t t) {
    const int64_t position =
        positions.is_null() ? first_position + t : Data<const int32_t>(positions)[t];
    float* row = Data<float>(table) + t * 2 * half;
    for (int64_t j = 0; j < half; ++j) {
      const float angle = static_cast<float>(position) * frequencies[j];
      row[j] = std::cos(angle);
      row[half + j] = std::sin(angle);
    }
  });
  return absl::OkStatus();
}

absl::Status Rotary(const Tensor& table, bool inverse, const Tensor& x, int num_threads) {
  constexpr int64_t kRowBlock = 4;
  const int64_t time = table.shape().num_rows(), size = table.shape().last_dim();
  ParallelForBlocks(num_threads, x.shape().num_rows(), kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(RotateRow)
      (x.dtype(), Data<const float>(table) + i % time * size, inverse, size, x.shape().last_dim(),
       Row(x, i));
    }
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
