#include "kernels/squared_norm.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class SquaredNormTest : public KernelTest {};

// A block of 4096 in at least four lanes errs by at most 1024 u; the blocks' sum is fp64.
TEST_P(SquaredNormTest, AgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const int64_t n : {1, 5, 4096, 4097, 100003}) {
      const std::vector<float> x = RandomOf(dtype, n, 0.1, 0.01);
      double expected = 0;
      for (const float value : x) expected += static_cast<double>(value) * value;
      const Tensor output = New({1});
      ASSERT_TRUE(SquaredNorm(Put(x, {n}, dtype), output, *stream_).ok());
      EXPECT_NEAR(Get(output)[0], expected, 1026 * kUnitRoundoff * expected) << DTypeName(dtype);
    }
  }
}

TEST_P(SquaredNormTest, IsFiniteExactlyWhereAllElementsAre) {
  for (const DType dtype : kFloatTypes) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, NAN}) {
      for (const int64_t at : {0, 4095, 9000}) {
        std::vector<float> x = Random(9001);
        const Tensor output = New({1});
        ASSERT_TRUE(SquaredNorm(Put(x, {9001}, dtype), output, *stream_).ok());
        EXPECT_TRUE(std::isfinite(Get(output)[0]));
        x[at] = bad;
        ASSERT_TRUE(SquaredNorm(Put(x, {9001}, dtype), output, *stream_).ok());
        EXPECT_FALSE(std::isfinite(Get(output)[0])) << DTypeName(dtype) << " " << bad;
      }
    }
  }
}

TEST_P(SquaredNormTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(SquaredNorm(New({3}), New({2}), *stream_).code(), absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(SquaredNormTest);

}  // namespace
}  // namespace tessera
