#include "worker/comm/reduce.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "hwy/targets.h"
#include "worker/comm/reference.h"

namespace tessera {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64};

Bytes RunReduce(DType dtype, ReduceOp op, const std::vector<Bytes>& inputs) {
  Bytes first(inputs[0].size()), second(inputs[0].size());
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Reduce(dtype, op, sources, {first.data(), second.data()},
         inputs[0].size() / DTypeSizeBytes(dtype));
  EXPECT_EQ(first, second);
  return first;
}

TEST(Reduce, MatchesPlainLoopsBitForBit) {
  for (DType dtype : kDTypes) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      for (int64_t count : {1, 3, 31, 32, 33, 1000}) {
        for (int ranks : {1, 2, 3, 8}) {
          std::vector<Bytes> inputs;
          for (int r = 0; r < ranks; ++r) inputs.push_back(TestData(dtype, count, r));
          EXPECT_EQ(RunReduce(dtype, op, inputs), ReferenceReduce(dtype, op, inputs))
              << DTypeName(dtype) << " " << count << " of " << ranks;
        }
      }
    }
  }
}

// A value and a zero: in, through fp32, and out again, for every bit pattern of 16 bits.
TEST(Reduce, KeepsEvery16BitValue) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    Bytes all(65536 * 2), zeros(65536 * 2);
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      std::memcpy(&all[i * 2], &bits, 2);
    }
    const Bytes out = RunReduce(dtype, ReduceOp::kSum, {all, zeros});
    for (int64_t i = 0; i < 65536; ++i) {
      const float in = GetFloat(dtype, all, i);
      if (std::isnan(in)) {
        EXPECT_TRUE(std::isnan(GetFloat(dtype, out, i))) << DTypeName(dtype) << " " << i;
      } else {
        EXPECT_EQ(GetFloat(dtype, out, i), in) << DTypeName(dtype) << " " << i;
      }
    }
  }
}

// Sums that fall between, on, and halfway between neighbours, subnormals and overflows included.
TEST(Reduce, RoundsToNearestEven) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const int64_t count = 1 << 18;
    Bytes a(count * 2), b(count * 2);
    uint64_t state = 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto x = static_cast<uint16_t>(state >> 48);
      // The second within a few binades of the first, where rounding happens.
      const auto y = static_cast<uint16_t>(x - ((state >> 20) & 0x1fff));
      std::memcpy(&a[i * 2], &x, 2);
      std::memcpy(&b[i * 2], &y, 2);
    }
    const Bytes out = RunReduce(dtype, ReduceOp::kSum, {a, b});
    const Bytes expected = ReferenceReduce(dtype, ReduceOp::kSum, {a, b});
    for (int64_t i = 0; i < count; ++i) {
      const float sum = GetFloat(dtype, expected, i);
      if (std::isnan(sum)) {
        ASSERT_TRUE(std::isnan(GetFloat(dtype, out, i))) << DTypeName(dtype) << " " << i;
      } else {
        ASSERT_EQ(GetFloat(dtype, out, i), sum) << DTypeName(dtype) << " " << i;
      }
    }
  }
}

TEST(Reduce, NaNWinsMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> cases = {{nan, 1, 2}, {1, nan, 2}, {1, 2, nan}};
  for (const auto& values : cases) {
    float out = 0;
    Reduce(DType::kFloat32, ReduceOp::kMax, {&values[0], &values[1], &values[2]}, {&out}, 1);
    EXPECT_TRUE(std::isnan(out));
  }
}

TEST(Reduce, IsTheSameOnEveryTarget) {
  std::vector<Bytes> results;
  for (DType dtype : kDTypes) {
    const std::vector<Bytes> inputs = {TestData(dtype, 999, 0), TestData(dtype, 999, 1),
                                       TestData(dtype, 999, 2)};
    const Bytes expected = ReferenceReduce(dtype, ReduceOp::kSum, inputs);
    for (uint32_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      EXPECT_EQ(RunReduce(dtype, ReduceOp::kSum, inputs), expected)
          << DTypeName(dtype) << " " << hwy::TargetName(target);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(CopyBytes, CopiesAnySizeAndAlignment) {
  for (int64_t size : {int64_t{0}, int64_t{1}, int64_t{1000}, (int64_t{1} << 20) + 77}) {
    for (int64_t shift : {0, 1, 63}) {
      const Bytes from = TestData(DType::kUInt8, size, 3);
      Bytes to(size + shift + 1, 0xee);
      CopyBytes(from.data(), to.data() + shift, size);
      EXPECT_EQ(Bytes(to.begin() + shift, to.end() - 1), from);
      EXPECT_EQ(to.back(), 0xee);
    }
  }
}

}  // namespace
}  // namespace tessera
