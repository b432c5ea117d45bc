// The passes over flat buffers: AdamW, squared norm, sums, scaling and conversion.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"
#include "kernels/squared_norm.h"

#ifndef TESSERA_KERNELS_CPU_OPTIMIZER_FACTORS_
#define TESSERA_KERNELS_CPU_OPTIMIZER_FACTORS_
namespace tessera {
// AdamWOptions, folded to what one element needs.
struct AdamWFactors {
  float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float keep;       // 1 - learning_rate * weight_decay
  float step_size;  // learning_rate / (1 - beta1^t)
  float rsqrt_correction2;
  float epsilon;
};
}  // namespace tessera
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// copy may be null.
template <typename G, typename C>
void AdamWElements(const AdamWFactors& f, const G* gradient, int64_t count, float* parameter,
                   float* exp_avg, float* exp_avg_sq, C* copy) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t left = count - i;
    const FloatVec g = hn::Mul(LoadUpTo(d, gradient + i, left), hn::Set(d, f.gradient_scale));
    const FloatVec m = hn::MulAdd(hn::Set(d, f.beta1), LoadUpTo(d, exp_avg + i, left),
                                  hn::Mul(hn::Set(d, f.one_minus_beta1), g));
    const FloatVec v = hn::MulAdd(hn::Set(d, f.beta2), LoadUpTo(d, exp_avg_sq + i, left),
                                  hn::Mul(hn::Set(d, f.one_minus_beta2), hn::Mul(g, g)));
    const FloatVec denominator =
        hn::MulAdd(hn::Sqrt(v), hn::Set(d, f.rsqrt_correction2), hn::Set(d, f.epsilon));
    const FloatVec kept = hn::Mul(LoadUpTo(d, parameter + i, left), hn::Set(d, f.keep));
    const FloatVec step = hn::Div(hn::Mul(hn::Set(d, f.step_size), m), denominator);
    const FloatVec p = hn::Sub(kept, step);
    StoreUpTo(d, m, exp_avg + i, left);
    StoreUpTo(d, v, exp_avg_sq + i, left);
    StoreUpTo(d, p, parameter + i, left);
    if (copy != nullptr) StoreUpTo(d, p, copy + i, left);
  }
}

template <typename S>
float SquareSum(const S* input, int64_t count) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const FloatVec x = LoadUpTo(d, input + i, count - i);
    sum = hn::MulAdd(x, x, sum);
  }
  return Sum(d, sum);
}

template <typename S>
void AddElements(const S* a, const S* b, int64_t count, S* output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t left = count - i;
    StoreUpTo(d, hn::Add(LoadUpTo(d, a + i, left), LoadUpTo(d, b + i, left)), output + i, left);
  }
}

template <typename S>
void ScaleElements(float factor, int64_t count, S* values) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t left = count - i;
    StoreUpTo(d, hn::Mul(LoadUpTo(d, values + i, left), hn::Set(d, factor)), values + i, left);
  }
}

template <typename S, typename T>
void CastElements(const S* input, int64_t count, T* output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < count; i += lanes) {
    StoreUpTo(d, LoadUpTo(d, input + i, count - i), output + i, count - i);
  }
}

// copy is null, or of dtype copy_dtype.
void AdamWBlock(const AdamWFactors& f, DType dtype, const void* gradient, int64_t count,
                float* parameter, float* exp_avg, float* exp_avg_sq, DType copy_dtype, void* copy) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    const auto* g = static_cast<const decltype(s)*>(gradient);
    if (copy_dtype == DType::kFloat16) {
      AdamWElements(f, g, count, parameter, exp_avg, exp_avg_sq, static_cast<Float16*>(copy));
    } else {
      AdamWElements(f, g, count, parameter, exp_avg, exp_avg_sq, static_cast<BFloat16*>(copy));
    }
  });
}

float SquareSumBlock(DType dtype, const void* input, int64_t count) {
  return WithElement(dtype, [&](auto s) HWY_ATTR {
    return SquareSum(static_cast<const decltype(s)*>(input), count);
  });
}

void AddBlock(DType dtype, const void* a, const void* b, int64_t count, void* output) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    AddElements(static_cast<const S*>(a), static_cast<const S*>(b), count, static_cast<S*>(output));
  });
}

void ScaleBlock(DType dtype, float factor, int64_t count, void* values) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    ScaleElements(factor, count, static_cast<decltype(s)*>(values));
  });
}

void CastBlock(DType from, DType to, const void* input, int64_t count, void* output) {
  WithElement(from, [&](auto s) HWY_ATTR {
    WithElement(to, [&](auto t) HWY_ATTR {
      CastElements(static_cast<const decltype(s)*>(input), count,
                   static_cast<decltype(t)*>(output));
    });
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(AdamWBlock);
HWY_EXPORT(SquareSumBlock);
HWY_EXPORT(AddBlock);
HWY_EXPORT(ScaleBlock);
HWY_EXPORT(CastBlock);

namespace cpu {
namespace {
constexpr int64_t kBlock = 8192;
}  // namespace

absl::Status AdamW(const Tensor& parameter, const Tensor& gradient, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const AdamWOptions& options, int num_threads) {
  const double t = static_cast<double>(options.step);
  AdamWFactors f;
  f.gradient_scale = static_cast<float>(options.gradient_scale);
  f.beta1 = static_cast<float>(options.beta1);
  f.beta2 = static_cast<float>(options.beta2);
  f.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  f.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  f.keep = static_cast<float>(1 - options.learning_rate * options.weight_decay);
  f.step_size = static_cast<float>(options.learning_rate / (1 - std::pow(options.beta1, t)));
  f.rsqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
  f.epsilon = static_cast<float>(options.epsilon);
  const Tensor& low = options.low_precision_parameter;
  ParallelForBlocks(num_threads, parameter.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AdamWBlock)
    (f, gradient.dtype(), At(gradient, begin), end - begin, Data<float>(parameter) + begin,
     Data<float>(exp_avg) + begin, Data<float>(exp_avg_sq) + begin, low.dtype(),
     low.is_null() ? nullptr : At(low, begin));
  });
  return absl::OkStatus();
}

absl::Status SquaredNorm(const Tensor& input, const Tensor& output, int num_threads) {
  const int64_t count = input.num_elements();
  std::vector<float> sums((count + kSquaredNormBlock - 1) / kSquaredNormBlock);
  ParallelForBlocks(num_threads, count, kSquaredNormBlock, [&](int64_t begin, int64_t end) {
    sums[begin / kSquaredNormBlock] =
        HWY_DYNAMIC_DISPATCH(SquareSumBlock)(input.dtype(), At(input, begin), end - begin);
  });
  double total = 0;
  for (float sum : sums) total += sum;
  *Data<float>(output) = static_cast<float>(total);
  return absl::OkStatus();
}

absl::Status Add(const Tensor& a, const Tensor& b, const Tensor& output, int num_threads) {
  ParallelForBlocks(num_threads, a.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddBlock)
    (a.dtype(), At(a, begin), At(b, begin), end - begin, At(output, begin));
  });
  return absl::OkStatus();
}

absl::Status Scale(const Tensor& tensor, float factor, int num_threads) {
  ParallelForBlocks(num_threads, tensor.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ScaleBlock)(tensor.dtype(), factor, end - begin, At(tensor, begin));
  });
  return absl::OkStatus();
}

absl::Status Cast(const Tensor& input, const Tensor& output, int num_threads) {
  ParallelForBlocks(num_threads, input.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CastBlock)
    (input.dtype(), output.dtype(), At(input, begin), end - begin, At(output, begin));
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
