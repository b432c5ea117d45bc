// Vectors of fp32 from and to elements of any of the three types. Included once per Highway target.
//
// The 16-bit types are converted with integer arithmetic, not with Highway's conversions, whose
// rounding and NaNs differ between targets: results have the same bits with and without F16C.
#if defined(TESSERA_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_VECTOR_INL_H_
#undef TESSERA_KERNELS_CPU_VECTOR_INL_H_
#else
#define TESSERA_KERNELS_CPU_VECTOR_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/dtype.h"
#include "kernels/float16.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
using U32Tag = hn::RebindToUnsigned<FloatTag>;
using U32Vec = hn::Vec<U32Tag>;

HWY_INLINE U32Vec LoadHalves(const uint16_t* p) {
  const hn::Rebind<uint16_t, FloatTag> u16;
  return hn::PromoteTo(U32Tag(), hn::LoadU(u16, p));
}

// The lower 16 bits of each lane.
HWY_INLINE void StoreHalves(U32Vec v, uint16_t* p) {
  const hn::RebindToSigned<FloatTag> i32;
  const hn::Rebind<int16_t, FloatTag> i16;
  const hn::Rebind<uint16_t, FloatTag> u16;
  // Through int32 with sign, of which the saturating pack keeps every bit.
  const auto sign = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(i32, v)));
  hn::StoreU(hn::BitCast(u16, hn::DemoteTo(i16, sign)), u16, p);
}

// A whole vector of elements from p, as fp32.
HWY_INLINE FloatVec LoadFull(FloatTag d, const float* p) { return hn::LoadU(d, p); }

HWY_INLINE FloatVec LoadFull(FloatTag d, const BFloat16* p) {
  return hn::BitCast(d, hn::ShiftLeft<16>(LoadHalves(&p->bits)));
}

HWY_INLINE FloatVec LoadFull(FloatTag d, const Float16* p) {
  const U32Tag u32;
  const U32Vec half = LoadHalves(&p->bits);
  const U32Vec sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(u32, 0x8000)));
  const U32Vec rest = hn::And(half, hn::Set(u32, 0x7fff));
  const U32Vec placed = hn::ShiftLeft<13>(rest);
  const U32Vec scaled = hn::BitCast(u32, hn::Mul(hn::BitCast(d, placed), hn::Set(d, 0x1p112f)));
  const auto special = hn::Gt(rest, hn::Set(u32, 0x7bff));
  const U32Vec value = hn::IfThenElse(special, hn::Or(placed, hn::Set(u32, 0x7f800000u)), scaled);
  return hn::BitCast(d, hn::Or(value, sign));
}

// A whole vector to p, rounded to nearest even.
HWY_INLINE void StoreFull(FloatTag d, FloatVec v, float* p) { hn::StoreU(v, d, p); }

HWY_INLINE void StoreFull(FloatTag, FloatVec v, BFloat16* p) {
  const U32Tag u32;
  const U32Vec bits = hn::BitCast(u32, v);
  const U32Vec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
  const U32Vec rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(u32, 0x7fff), odd)));
  // A NaN must not round up to infinity: its top bits, made quiet.
  const U32Vec quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u32, 0x40));
  StoreHalves(hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(v)), quiet, rounded), &p->bits);
}

HWY_INLINE void StoreFull(FloatTag d, FloatVec v, Float16* p) {
  const U32Tag u32;
  const U32Vec bits = hn::BitCast(u32, v);
  const U32Vec magnitude = hn::And(bits, hn::Set(u32, 0x7fffffff));
  const U32Vec sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 0x8000));
  const U32Vec odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 1));
  const U32Vec normal =
      hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(hn::Set(u32, 0xc8000fffu), odd)));
  const FloatVec half = hn::Set(d, 0.5f);
  const FloatVec aligned = hn::Add(hn::BitCast(d, magnitude), half);
  const U32Vec subnormal = hn::Sub(hn::BitCast(u32, aligned), hn::BitCast(u32, half));
  U32Vec result = hn::IfThenElse(hn::Gt(hn::Set(u32, 113u << 23), magnitude), subnormal, normal);
  result =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(u32, 0x477fefffu)), hn::Set(u32, 0x7c00), result);
  result =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(u32, 0x7f800000u)), hn::Set(u32, 0x7e00), result);
  StoreHalves(hn::Or(result, sign), &p->bits);
}

// min(count, lanes) elements from p, the other lanes 0; reads no others.
template <typename S>
HWY_INLINE FloatVec LoadUpTo(FloatTag d, const S* HWY_RESTRICT p, int64_t count) {
  if (count >= static_cast<int64_t>(hn::Lanes(d))) return LoadFull(d, p);
  HWY_ALIGN S lanes[hn::MaxLanes(FloatTag())] = {};
  std::memcpy(lanes, p, count * sizeof(S));
  return LoadFull(d, lanes);
}

// The first min(count, lanes) lanes of v to p; writes no others.
template <typename S>
HWY_INLINE void StoreUpTo(FloatTag d, FloatVec v, S* HWY_RESTRICT p, int64_t count) {
  if (count >= static_cast<int64_t>(hn::Lanes(d))) {
    StoreFull(d, v, p);
    return;
  }
  HWY_ALIGN S lanes[hn::MaxLanes(FloatTag())];
  StoreFull(d, v, lanes);
  std::memcpy(p, lanes, count * sizeof(S));
}

// v rounded to S and back.
template <typename S>
HWY_INLINE FloatVec RoundTo(FloatTag d, FloatVec v) {
  if constexpr (sizeof(S) == sizeof(float)) {
    return v;
  } else {
    HWY_ALIGN S lanes[hn::MaxLanes(FloatTag())];
    StoreFull(d, v, lanes);
    return LoadFull(d, lanes);
  }
}

// Sum of the lanes of v.
HWY_INLINE float Sum(FloatTag d, FloatVec v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

// body(S()) with S the element type of dtype. REQUIRES: one of the three float types.
template <typename Body>
HWY_INLINE auto WithElement(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBFloat16:
      return body(BFloat16());
    case DType::kFloat16:
      return body(Float16());
    default:
      return body(float());
  }
}

// body(S(), G()) with S of dtype and G of accumulated, which is dtype or fp32.
template <typename Body>
HWY_INLINE auto WithElements(DType dtype, DType accumulated, const Body& body) {
  return WithElement(
      dtype, [&](auto s) HWY_ATTR { return accumulated == dtype ? body(s, s) : body(s, float()); });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
