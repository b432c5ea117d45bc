#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// exp(-x), at most exp(88), which is finite: below x = -88 silu errs by less than 1e-38 |x|.
HWY_INLINE FloatVec ExpMinus(FloatTag d, FloatVec x) {
  return hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)));
}

template <typename S>
void SwiGluRow(const S* gate, const S* up, int64_t count, S* output) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t left = count - i;
    const FloatVec x = LoadUpTo(d, gate + i, left);
    const FloatVec silu = hn::Div(x, hn::Add(one, ExpMinus(d, x)));
    StoreUpTo(d, hn::Mul(silu, LoadUpTo(d, up + i, left)), output + i, left);
  }
}

// With e = exp(-x), s = 1 / (1 + e): silu' = s * (1 + x * (1 - s)) and 1 - s = e * s.
template <typename S>
void SwiGluGradientRow(const S* gate, const S* up, const S* d_output, int64_t count, S* d_gate,
                       S* d_up) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t left = count - i;
    const FloatVec x = LoadUpTo(d, gate + i, left), u = LoadUpTo(d, up + i, left);
    const FloatVec g = LoadUpTo(d, d_output + i, left);
    const FloatVec e = ExpMinus(d, x);
    const FloatVec s = hn::Div(one, hn::Add(one, e));
    const FloatVec slope = hn::Mul(s, hn::MulAdd(x, hn::Mul(e, s), one));
    StoreUpTo(d, hn::Mul(hn::Mul(g, u), slope), d_gate + i, left);
    StoreUpTo(d, hn::Mul(g, hn::Mul(x, s)), d_up + i, left);
  }
}

void SwiGlu(DType dtype, const void* gate, const void* up, int64_t count, void* output) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    SwiGluRow(static_cast<const S*>(gate), static_cast<const S*>(up), count,
              static_cast<S*>(output));
  });
}

void SwiGluGradient(DType dtype, const void* gate, const void* up, const void* d_output,
                    int64_t count, void* d_gate, void* d_up) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    SwiGluGradientRow(static_cast<const S*>(gate), static_cast<const S*>(up),
                      static_cast<const S*>(d_output), count, static_cast<S*>(d_gate),
                      static_cast<S*>(d_up));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(SwiGlu);
HWY_EXPORT(SwiGluGradient);

namespace cpu {
namespace {
constexpr int64_t kRowBlock = 4;
}  // namespace

absl::Status SwiGluForward(const Tensor& gate, const Tensor& up, const Tensor& output,
                           int num_threads) {
  const int64_t columns = gate.shape().last_dim();
  ParallelForBlocks(num_threads, gate.shape().num_rows(), kRowBlock,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        HWY_DYNAMIC_DISPATCH(SwiGlu)
                        (gate.dtype(), Row(gate, i), Row(up, i), columns, Row(output, i));
                      }
                    });
  return absl::OkStatus();
}

absl::Status SwiGluBackward(const Tensor& gate, const Tensor& up, const Tensor& d_output,
                            const Tensor& d_gate, const Tensor& d_up, int num_threads) {
  const int64_t columns = gate.shape().last_dim();
  ParallelForBlocks(num_threads, gate.shape().num_rows(), kRowBlock,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        HWY_DYNAMIC_DISPATCH(SwiGluGradient)
                        (gate.dtype(), Row(gate, i), Row(up, i), Row(d_output, i), columns,
                         Row(d_gate, i), Row(d_up, i));
                      }
                    });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
