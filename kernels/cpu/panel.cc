#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/panel.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

template <typename S>
void PromoteRow(const S* from, int64_t columns, float* to) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t j = 0; j < columns; j += lanes) {
    StoreUpTo(d, LoadUpTo(d, from + j, columns - j), to + j, columns - j);
  }
}

template <typename S>
void DemoteRow(const float* from, const float* bias, const S* addend, int64_t columns, S* to) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t j = 0; j < columns; j += lanes) {
    const int64_t left = columns - j;
    FloatVec v = LoadUpTo(d, from + j, left);
    if (bias != nullptr) v = hn::Add(v, LoadUpTo(d, bias + j, left));
    if (addend != nullptr) v = hn::Add(v, LoadUpTo(d, addend + j, left));
    StoreUpTo(d, v, to + j, left);
  }
}

void Promote(DType dtype, const void* from, int64_t from_stride, int64_t rows, int64_t columns,
             float* to, int64_t to_stride) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    const auto* source = static_cast<const decltype(s)*>(from);
    for (int64_t i = 0; i < rows; ++i) {
      PromoteRow(source + i * from_stride, columns, to + i * to_stride);
    }
  });
}

void Demote(DType dtype, const float* from, int64_t from_stride, int64_t rows, int64_t columns,
            const cpu::PanelAddends& addends, void* to, int64_t to_stride) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    const S* addend = static_cast<const S*>(addends.addend);
    for (int64_t i = 0; i < rows; ++i) {
      DemoteRow(from + i * from_stride, addends.bias,
                addend == nullptr ? nullptr : addend + i * addends.addend_stride, columns,
                static_cast<S*>(to) + i * to_stride);
    }
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(Promote);
HWY_EXPORT(Demote);

namespace cpu {

void PromotePanel(DType dtype, const void* from, int64_t from_stride, int64_t rows, int64_t columns,
                  float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(Promote)(dtype, from, from_stride, rows, columns, to, to_stride);
}

void DemotePanel(DType dtype, const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                 const PanelAddends& addends, void* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(Demote)(dtype, from, from_stride, rows, columns, addends, to, to_stride);
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
