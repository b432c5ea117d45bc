#include "worker/comm/reduce.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/comm/reduce.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;

// How elements of one dtype come into the accumulator and out of it. bfloat16 and float16 are
// converted with integer arithmetic, not with Highway's conversions, whose rounding and NaNs differ
// between targets.
struct Float32 {
  using T = float;
  using D = F32;
  static HWY_INLINE hn::Vec<D> Load(const T* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void Store(hn::Vec<D> value, T* to) { hn::StoreU(value, D(), to); }
};

struct Int64 {
  using T = int64_t;
  using D = hn::ScalableTag<int64_t>;
  static HWY_INLINE hn::Vec<D> Load(const T* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void Store(hn::Vec<D> value, T* to) { hn::StoreU(value, D(), to); }
};

HWY_INLINE hn::Vec<U32> LoadHalves(const uint16_t* from) {
  return hn::PromoteTo(U32(), hn::LoadU(U16(), from));
}
HWY_INLINE void StoreHalves(hn::Vec<U32> value, uint16_t* to) {
  // Values fit 16 bits; taken through int32 with sign, for the saturating pack keeps all of them.
  const I32 i32;
  const hn::Rebind<int16_t, F32> i16;
  const auto sign = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(i32, value)));
  hn::StoreU(hn::BitCast(U16(), hn::DemoteTo(i16, sign)), U16(), to);
}

struct BFloat16 {
  using T = uint16_t;
  using D = F32;
  static HWY_INLINE hn::Vec<D> Load(const T* from) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(LoadHalves(from)));
  }
  static HWY_INLINE void Store(hn::Vec<D> value, T* to) {
    const U32 u32;
    const auto bits = hn::BitCast(u32, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(u32, 0x7fff), odd)));
    // A NaN must not round up to infinity: keep its top bits and make it quiet.
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u32, 0x40));
    const auto is_nan = hn::RebindMask(u32, hn::IsNaN(value));
    StoreHalves(hn::IfThenElse(is_nan, quiet, rounded), to);
  }
};

struct Float16 {
  using T = uint16_t;
  using D = F32;
  static HWY_INLINE hn::Vec<D> Load(const T* from) {
    const D f32;
    const U32 u32;
    const auto half = LoadHalves(from);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(u32, 0x8000)));
    const auto rest = hn::And(half, hn::Set(u32, 0x7fff));
    // Exponent and mantissa moved into place are the value times 2^-112, subnormals included; one
    // exact product sets that right. Infinity and NaN get the largest exponent instead.
    const auto placed = hn::ShiftLeft<13>(rest);
    const auto scaled = hn::BitCast(
        u32, hn::Mul(hn::BitCast(f32, placed), hn::BitCast(f32, hn::Set(u32, 239u << 23))));
    const auto special = hn::Gt(rest, hn::Set(u32, 0x7bff));
    const auto value = hn::IfThenElse(special, hn::Or(placed, hn::Set(u32, 255u << 23)), scaled);
    return hn::BitCast(f32, hn::Or(value, sign));
  }
  static HWY_INLINE void Store(hn::Vec<D> value, T* to) {
    const D f32;
    const U32 u32;
    const auto bits = hn::BitCast(u32, value);
    const auto magnitude = hn::And(bits, hn::Set(u32, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 0x8000));
    // Normal results: rebias the exponent (-112) and round half to even at bit 13.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 1));
    const auto bias = hn::Set(u32, 0xc8000fffu);  // (-112 << 23) + 0xfff
    const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(bias, odd)));
    // Below 2^-14: adding 0.5 aligns the mantissa at 2^-24, the float unit rounds half to even.
    const auto half = hn::Set(f32, 0.5f);
    const auto aligned = hn::Add(hn::BitCast(f32, magnitude), half);
    const auto subnormal = hn::Sub(hn::BitCast(u32, aligned), hn::BitCast(u32, half));
    auto result = hn::IfThenElse(hn::Gt(hn::Set(u32, 113u << 23), magnitude), subnormal, normal);
    // 65520 and above round to infinity; NaNs become the quiet one.
    result =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(u32, 0x477fefff)), hn::Set(u32, 0x7c00), result);
    result =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(u32, 255u << 23)), hn::Set(u32, 0x7e00), result);
    StoreHalves(hn::Or(result, sign), to);
  }
};

struct Sum {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Add(a, b);
  }
};
// hn::Max leaves NaNs to the target.
struct Max {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::Not(hn::Eq(b, b))), b, a);
  }
};

// Four vectors at a time: independent chains, and whole cache lines to one output before the next.
constexpr int kUnroll = 4;

template <class E, class Op>
void ReduceVectors(absl::Span<const void* const> sources, absl::Span<void* const> outputs,
                   int64_t count) {
  using T = typename E::T;
  const int64_t lanes = hn::Lanes(typename E::D());
  const auto source = [&](size_t s) { return static_cast<const T*>(sources[s]); };
  int64_t i = 0;
  for (; i + kUnroll * lanes <= count; i += kUnroll * lanes) {
    auto a = E::Load(source(0) + i);
    auto b = E::Load(source(0) + i + lanes);
    auto c = E::Load(source(0) + i + 2 * lanes);
    auto d = E::Load(source(0) + i + 3 * lanes);
    for (size_t s = 1; s < sources.size(); ++s) {
      a = Op::Apply(a, E::Load(source(s) + i));
      b = Op::Apply(b, E::Load(source(s) + i + lanes));
      c = Op::Apply(c, E::Load(source(s) + i + 2 * lanes));
      d = Op::Apply(d, E::Load(source(s) + i + 3 * lanes));
    }
    for (void* output : outputs) {
      T* to = static_cast<T*>(output) + i;
      E::Store(a, to);
      E::Store(b, to + lanes);
      E::Store(c, to + 2 * lanes);
      E::Store(d, to + 3 * lanes);
    }
  }
  // The tail goes through a padded vector, so that it is the same arithmetic.
  for (; i < count; i += lanes) {
    const int64_t tail = HWY_MIN(lanes, count - i);
    HWY_ALIGN T padded[hn::MaxLanes(typename E::D())] = {};
    std::memcpy(padded, source(0) + i, tail * sizeof(T));
    auto sum = E::Load(padded);
    for (size_t s = 1; s < sources.size(); ++s) {
      std::memcpy(padded, source(s) + i, tail * sizeof(T));
      sum = Op::Apply(sum, E::Load(padded));
    }
    E::Store(sum, padded);
    for (void* output : outputs) {
      std::memcpy(static_cast<T*>(output) + i, padded, tail * sizeof(T));
    }
  }
}

template <class E>
void ReduceElements(ReduceOp op, absl::Span<const void* const> sources,
                    absl::Span<void* const> outputs, int64_t count) {
  if (op == ReduceOp::kSum) {
    ReduceVectors<E, Sum>(sources, outputs, count);
  } else {
    ReduceVectors<E, Max>(sources, outputs, count);
  }
}

void ReduceFor(DType dtype, ReduceOp op, absl::Span<const void* const> sources,
               absl::Span<void* const> outputs, int64_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return ReduceElements<Float32>(op, sources, outputs, count);
    case DType::kBFloat16:
      return ReduceElements<BFloat16>(op, sources, outputs, count);
    case DType::kFloat16:
      return ReduceElements<Float16>(op, sources, outputs, count);
    case DType::kInt64:
      return ReduceElements<Int64>(op, sources, outputs, count);
    case DType::kInt32:
    case DType::kUInt8:
      return;
  }
}

// REQUIRES: `to` aligned to 64, size_bytes a multiple of 64.
void StreamBytes(const uint8_t* HWY_RESTRICT from, uint8_t* HWY_RESTRICT to, int64_t size_bytes) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < size_bytes; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(ReduceFor);
HWY_EXPORT(StreamBytes);
}  // namespace

bool CanReduce(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16 ||
         dtype == DType::kInt64;
}

void Reduce(DType dtype, ReduceOp op, absl::Span<const void* const> sources,
            absl::Span<void* const> outputs, int64_t count) {
  if (count == 0) return;
  if (sources.size() > 1)
    return HWY_DYNAMIC_DISPATCH(ReduceFor)(dtype, op, sources, outputs, count);
  for (void* output : outputs) {
    if (output != sources[0]) std::memcpy(output, sources[0], count * DTypeSizeBytes(dtype));
  }
}

void CopyBytes(const void* from, void* to, int64_t size_bytes) {
  // Below this a copy is worth more in the cache.
  constexpr int64_t kStreamBytes = 1 << 20;
  constexpr int64_t kLine = 64;
  if (size_bytes == 0 || from == to) return;
  if (size_bytes < kStreamBytes) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  const auto* source = static_cast<const uint8_t*>(from);
  auto* target = static_cast<uint8_t*>(to);
  const int64_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  const int64_t body = (size_bytes - head) / kLine * kLine;
  std::memcpy(target, source, head);
  HWY_DYNAMIC_DISPATCH(StreamBytes)(source + head, target + head, body);
  std::memcpy(target + head + body, source + head + body, size_bytes - head - body);
}

}  // namespace tessera
#endif  // HWY_ONCE
