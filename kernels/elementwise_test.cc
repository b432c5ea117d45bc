#include "kernels/elementwise.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class ElementwiseTest : public KernelTest {};

// One rounding each: exact.
TEST_P(ElementwiseTest, AddAndScale) {
  for (const DType dtype : kFloatTypes) {
    for (const int64_t n : {1, 9, 20000}) {
      std::vector<float> a = RandomOf(dtype, n);
      const std::vector<float> b = RandomOf(dtype, n);
      const Tensor sum = Put(a, {n}, dtype);  // in place
      ASSERT_TRUE(Add(sum, Put(b, {n}, dtype), sum, *stream_).ok());
      ASSERT_TRUE(Scale(sum, 0.3f, *stream_).ok());
      for (int64_t i = 0; i < n; ++i) {
        a[i] = RoundTo(dtype, RoundTo(dtype, a[i] + b[i]) * 0.3f);
      }
      EXPECT_EQ(Get(sum), a) << DTypeName(dtype);
    }
  }
}

TEST_P(ElementwiseTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Add(New({3}), New({4}), New({3}), *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Scale(New({2, 4}).Columns(0, 2), 2, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(ElementwiseTest);

}  // namespace
}  // namespace tessera
