#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

constexpr float kSqrt2OverPi = 0.7978845608028654f;
constexpr float kCubic = 0.044715f;

// exp(-2u), which both functions use: s = 1 / (1 + e) = (1 + tanh(u)) / 2 and 1 - s = e * s cancel
// in neither tail. hwy's Exp errs by 1 ulp. exp(88) is finite; beyond it s * |x| is 0 in fp32.
HWY_INLINE FloatVec ExpMinusTwice(FloatTag d, FloatVec u) {
  return hn::Exp(d, hn::Min(hn::Mul(u, hn::Set(d, -2.0f)), hn::Set(d, 88.0f)));
}

HWY_INLINE FloatVec Inner(FloatTag d, FloatVec x) {
  const FloatVec cubic = hn::Mul(hn::Set(d, kSqrt2OverPi * kCubic), hn::Mul(x, x));
  return hn::Mul(x, hn::Add(hn::Set(d, kSqrt2OverPi), cubic));
}

template <typename S>
void GeluBlock(const S* input, int64_t count, S* output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += lanes) {
    const FloatVec x = LoadUpTo(d, input + i, count - i);
    const FloatVec e = ExpMinusTwice(d, Inner(d, x));
    StoreUpTo(d, hn::Div(x, hn::Add(one, e)), output + i, count - i);
  }
}

// With s = 1 / (1 + exp(-2u)): gelu' = s + x * 2 * s * (1 - s) * u'.
template <typename S>
void GeluGradientBlock(const S* input, const S* d_output, int64_t count, S* d_input) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += lanes) {
    const FloatVec x = LoadUpTo(d, input + i, count - i);
    const FloatVec e = ExpMinusTwice(d, Inner(d, x));
    const FloatVec s = hn::Div(one, hn::Add(one, e));
    const FloatVec twice_slope = hn::MulAdd(hn::Set(d, 6.0f * kSqrt2OverPi * kCubic), hn::Mul(x, x),
                                            hn::Set(d, 2.0f * kSqrt2OverPi));
    const FloatVec tail = hn::Mul(hn::Mul(x, twice_slope), hn::Mul(hn::Mul(e, s), s));
    StoreUpTo(d, hn::Mul(LoadUpTo(d, d_output + i, count - i), hn::Add(s, tail)), d_input + i,
              count - i);
  }
}

void Gelu(DType dtype, const void* input, int64_t count, void* output) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    GeluBlock(static_cast<const S*>(input), count, static_cast<S*>(output));
  });
}

void GeluGradient(DType dtype, const void* input, const void* d_output, int64_t count,
                  void* d_input) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    GeluGradientBlock(static_cast<const S*>(input), static_cast<const S*>(d_output), count,
                      static_cast<S*>(d_input));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluGradient);

namespace cpu {
namespace {
constexpr int64_t kBlock = 8192;
}  // namespace

absl::Status GeluForward(const Tensor& input, const Tensor& output, int num_threads) {
  ParallelForBlocks(num_threads, input.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Gelu)
    (input.dtype(), At(input, begin), end - begin, At(output, begin));
  });
  return absl::OkStatus();
}

absl::Status GeluBackward(const Tensor& input, const Tensor& d_output, const Tensor& d_input,
                          int num_threads) {
  ParallelForBlocks(num_threads, input.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GeluGradient)
    (input.dtype(), At(input, begin), At(d_output, begin), end - begin, At(d_input, begin));
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
