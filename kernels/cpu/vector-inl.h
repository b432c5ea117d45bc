// Loads and stores of the last, partial vector. Included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_VECTOR_INL_H_
#undef TESSERA_KERNELS_CPU_VECTOR_INL_H_
#else
#define TESSERA_KERNELS_CPU_VECTOR_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// min(count, lanes) floats from p, the other lanes 0; reads no others.
HWY_INLINE FloatVec LoadUpTo(FloatTag d, const float* HWY_RESTRICT p, int64_t count) {
  if (count >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, p);
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())] = {};
  std::memcpy(lanes, p, count * sizeof(float));
  return hn::Load(d, lanes);
}

// The first min(count, lanes) lanes of v to p; writes no others.
HWY_INLINE void StoreUpTo(FloatTag d, FloatVec v, float* HWY_RESTRICT p, int64_t count) {
  if (count >= static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(v, d, p);
    return;
  }
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(v, d, lanes);
  std::memcpy(p, lanes, count * sizeof(float));
}

// Sum of the lanes of v.
HWY_INLINE float Sum(FloatTag d, FloatVec v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
