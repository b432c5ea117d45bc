// One vector of blocks of Philox at a time: lane l computes the block of four elements that is l
// blocks on.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"
#include "kernels/philox.h"

#ifndef TESSERA_KERNELS_CPU_DROPOUT_MASK_
#define TESSERA_KERNELS_CPU_DROPOUT_MASK_
namespace tessera {
// DropoutOptions, folded to what one element needs.
struct DropoutMask {
  uint64_t seed, stream;
  uint32_t threshold;  // an element is dropped whose word is below
  float scale;         // of those kept
};
}  // namespace tessera
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// bits[4 * b + w] = word w of block first_block + b, for the Lanes() blocks of one vector.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void PhiloxVector(const DropoutMask& mask, uint64_t first_block, uint32_t* bits) {
  const std::array<uint32_t, 4> words = PhiloxBlock(mask.seed, mask.stream, first_block);
  std::memcpy(bits, words.data(), sizeof(words));
}
#else
// The upper and lower halves of the 64-bit products.
HWY_INLINE void MultiplyWide(U32Tag d, U32Vec a, uint32_t factor, U32Vec& high, U32Vec& low) {
  const hn::RepartitionToWide<U32Tag> d64;
  const U32Vec factors = hn::Set(d, factor);
  const auto even = hn::MulEven(a, factors);
  const U32Vec odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a)));
  const auto odd = hn::MulEven(odd_lanes, factors);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

HWY_INLINE void PhiloxVector(const DropoutMask& mask, uint64_t first_block, uint32_t* bits) {
  const U32Tag d;
  const U32Vec first = hn::Set(d, static_cast<uint32_t>(first_block));
  U32Vec c0 = hn::Add(first, hn::Iota(d, 0));
  // The carry of the counter's lower word.
  U32Vec c1 = hn::Set(d, static_cast<uint32_t>(first_block >> 32));
  c1 = hn::IfThenElse(hn::Gt(first, c0), hn::Add(c1, hn::Set(d, 1)), c1);
  U32Vec c2 = hn::Set(d, static_cast<uint32_t>(mask.stream));
  U32Vec c3 = hn::Set(d, static_cast<uint32_t>(mask.stream >> 32));
  uint32_t key0 = static_cast<uint32_t>(mask.seed);
  uint32_t key1 = static_cast<uint32_t>(mask.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    U32Vec high0, low0, high1, low1;
    MultiplyWide(d, c0, kPhiloxMultiplier0, high0, low0);
    MultiplyWide(d, c2, kPhiloxMultiplier1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
    c3 = low0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, bits);
}
#endif

template <typename S>
void DropoutElements(const DropoutMask& mask, uint64_t index, const S* input, int64_t count,
                     S* output) {
  constexpr int64_t kMaxLanes = hn::MaxLanes(FloatTag());
  const FloatTag d;
  const U32Tag d32;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec scale = hn::Set(d, mask.scale);
  const U32Vec threshold = hn::Set(d32, mask.threshold);
  // Four elements of the block that the first element is in the middle of come before it.
  HWY_ALIGN uint32_t bits[4 * kMaxLanes];
  int64_t before = static_cast<int64_t>(index % 4);
  uint64_t block = index / 4;
  for (int64_t begin = -before; begin < count; begin += 4 * lanes, block += lanes) {
    PhiloxVector(mask, block, bits);
    for (int64_t i = HWY_MAX(begin, 0); i < HWY_MIN(begin + 4 * lanes, count);) {
      const int64_t left = HWY_MIN(HWY_MIN(begin + 4 * lanes, count) - i, lanes);
      HWY_ALIGN uint32_t words[kMaxLanes] = {};
      std::memcpy(words, bits + (i - begin), left * sizeof(uint32_t));
      const auto dropped = hn::RebindMask(d, hn::Gt(threshold, hn::Load(d32, words)));
      const FloatVec kept = hn::Mul(LoadUpTo(d, input + i, left), scale);
      StoreUpTo(d, hn::IfThenZeroElse(dropped, kept), output + i, left);
      i += left;
    }
  }
}

void DropoutRow(const DropoutMask& mask, DType dtype, uint64_t index, const void* input,
                int64_t count, void* output) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    DropoutElements(mask, index, static_cast<const S*>(input), count, static_cast<S*>(output));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(DropoutRow);

namespace cpu {

absl::Status Dropout(const Tensor& input, const DropoutOptions& options, const Tensor& output,
                     int num_threads) {
  constexpr int64_t kRowBlock = 4;
  const int64_t columns = input.shape().last_dim();
  const int64_t row_elements = options.row_elements == 0 ? columns : options.row_elements;
  const double threshold = std::nearbyint(static_cast<double>(options.probability) * 0x1p32);
  // A probability below 1 is at most 1 - 2^-24, so the threshold fits.
  const DropoutMask mask{options.seed, options.stream, static_cast<uint32_t>(threshold),
                         static_cast<float>(1 / (1 - static_cast<double>(options.probability)))};
  ParallelForBlocks(num_threads, input.shape().num_rows(), kRowBlock,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        HWY_DYNAMIC_DISPATCH(DropoutRow)
                        (mask, input.dtype(), options.first_index + i * row_elements, Row(input, i),
                         columns, Row(output, i));
                      }
                    });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
