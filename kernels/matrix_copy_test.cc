#include "kernels/matrix_copy.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class MatrixCopyTest : public KernelTest {};

struct Sizes {
  int64_t rows, columns, before, after;  // columns of the wider matrix beside the copied ones
};
constexpr Sizes kSizes[] = {{1, 1, 0, 0}, {3, 7, 2, 1}, {700, 33, 1, 4}, {2, 9001, 0, 3}};

// Rounded once where dtypes differ; columns beside stay as they are.
TEST_P(MatrixCopyTest, CopiesAndConverts) {
  for (const DType from : kFloatTypes) {
    for (const DType to : kFloatTypes) {
      for (const Sizes& s : kSizes) {
        const int64_t width = s.before + s.columns + s.after;
        const std::vector<float> source = RandomOf(from, s.rows * width);
        std::vector<float> expected = RandomOf(to, s.rows * width);
        const Tensor a = Put(source, {s.rows, width}, from), b = Put(expected, {s.rows, width}, to);
        // The columns move, so that the two are aligned differently.
        ASSERT_TRUE(
            CopyMatrix(a.Columns(s.before, s.columns), b.Columns(s.after, s.columns), *stream_)
                .ok());
        for (int64_t i = 0; i < s.rows * s.columns; ++i) {
          const int64_t row = i / s.columns * width, c = i % s.columns;
          expected[row + s.after + c] = RoundTo(to, source[row + s.before + c]);
        }
        EXPECT_EQ(Get(b), expected) << DTypeName(from) << " to " << DTypeName(to);
      }
    }
  }
}

TEST_P(MatrixCopyTest, CopiesIds) {
  const std::vector<int32_t> ids = RandomIds(12, -1000000, 1000000);
  const Tensor from = PutIds(ids, {3, 4}), to = PutIds(std::vector<int32_t>(6), {3, 2});
  ASSERT_TRUE(CopyMatrix(from.Columns(1, 2), to, *stream_).ok());
  std::vector<int32_t> result(6);
  ASSERT_TRUE(device_->CopyOut(to, result.data(), 24, *stream_).ok());
  EXPECT_EQ(result, (std::vector<int32_t>{ids[1], ids[2], ids[5], ids[6], ids[9], ids[10]}));
}

// One fp32 addition: exact.
TEST_P(MatrixCopyTest, AddsInto) {
  for (const DType dtype : kFloatTypes) {
    for (const Sizes& s : kSizes) {
      const int64_t width = s.before + s.columns + s.after;
      const std::vector<float> source = RandomOf(dtype, s.rows * width);
      std::vector<float> expected = Random(s.rows * width);
      const Tensor a = Put(source, {s.rows, width}, dtype), b = Put(expected, {s.rows, width});
      ASSERT_TRUE(
          AddInto(a.Columns(s.before, s.columns), b.Columns(s.after, s.columns), *stream_).ok());
      for (int64_t i = 0; i < s.rows * s.columns; ++i) {
        const int64_t row = i / s.columns * width, c = i % s.columns;
        expected[row + s.after + c] += source[row + s.before + c];
      }
      EXPECT_EQ(Get(b), expected) << DTypeName(dtype);
    }
  }
}

TEST_P(MatrixCopyTest, RefusesWhatDoesNotFit) {
  const Tensor ids = PutIds(std::vector<int32_t>{1, 2}, {1, 2});
  for (const absl::Status& status :
       {CopyMatrix(New({2, 3}), New({3, 2}), *stream_), CopyMatrix(New({6}), New({6}), *stream_),
        CopyMatrix(ids, New({1, 2}), *stream_), AddInto(ids, New({1, 2}), *stream_),
        AddInto(New({1, 2}), New({1, 2}, DType::kBFloat16), *stream_)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_TRUE(CopyMatrix(New({2, 3}).Columns(0, 0), New({2, 1}).Columns(1, 0), *stream_).ok());
}

TESSERA_INSTANTIATE_KERNEL_TEST(MatrixCopyTest);

}  // namespace
}  // namespace tessera
