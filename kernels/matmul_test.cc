#include "kernels/matmul.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

struct Sizes {
  int64_t m, n, k;
};

// Below, above and across the CPU's tiles, and sizes of one.
constexpr Sizes kSizes[] = {{1, 1, 1},    {3, 5, 7},     {37, 257, 24}, {300, 33, 129},
                            {7, 1100, 5}, {64, 128, 32}, {1, 17, 513},  {259, 1, 3},
                            {530, 9, 7},  {5, 7, 2100}};

class MatmulTest : public KernelTest {};

// Of operands, and of the output.
struct Types {
  DType operands, output;
};

// |error| <= (k + 3) u sum|a||b| covers any order of a sum of k products (Higham, Accuracy and
// Stability, 3.5), plus the roundings of alpha, bias and addend; + u |rest| for those.
void ExpectProduct(DType dtype, const std::vector<float>& output,
                   const std::vector<double>& expected, const std::vector<double>& magnitude,
                   int64_t k) {
  for (size_t i = 0; i < output.size(); ++i) {
    ASSERT_NEAR(output[i], expected[i],
                (k + 3) * kUnitRoundoff * magnitude[i] + 1.01 * StoreError(dtype, expected[i]))
        << "element " << i;
  }
}

// One product with what is fused into it, all inputs random: fusion is none, accumulate, bias,
// addend, bias and addend.
void CheckProduct(KernelRig& rig, const Types& types, const Sizes& s, bool ta, bool tb,
                  int fusion) {
  const auto& [in, out] = types;
  const std::vector<float> a = rig.RandomOf(in, s.m * s.k), b = rig.RandomOf(in, s.k * s.n);
  const std::vector<float> c = rig.RandomOf(out, s.m * s.n), bias = rig.RandomOf(in, s.n);
  const std::vector<float> add = rig.RandomOf(out, s.m * s.n);
  MatmulOptions options;
  options.transpose_a = ta;
  options.transpose_b = tb;
  options.alpha = 0.5f;
  options.accumulate = fusion == 1;
  if (fusion == 2 || fusion == 4) options.bias = rig.Put(bias, {s.n}, in);
  if (fusion >= 3) options.addend = rig.Put(add, {s.m, s.n}, out);
  const Tensor output = rig.Put(c, {s.m, s.n}, out);
  ASSERT_TRUE(Matmul(rig.Put(a, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, in),
                     rig.Put(b, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, in), output, options,
                     *rig.stream_)
                  .ok());
  std::vector<double> expected(s.m * s.n), magnitude(s.m * s.n);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < s.k; ++l) {
        const double term = 0.5 * a[ta ? l * s.m + i : i * s.k + l] *
                            static_cast<double>(b[tb ? j * s.k + l : l * s.n + j]);
        sum += term;
        size += std::abs(term);
      }
      const double rest = fusion == 1 ? c[i * s.n + j] : 0;
      const double bias_value = fusion == 2 || fusion == 4 ? bias[j] : 0;
      const double addend = fusion >= 3 ? add[i * s.n + j] : 0;
      expected[i * s.n + j] = sum + rest + bias_value + addend;
      magnitude[i * s.n + j] = size + std::abs(rest) + std::abs(bias_value) + std::abs(addend);
    }
  }
  SCOPED_TRACE(testing::Message() << DTypeName(in) << " to " << DTypeName(out) << " " << s.m << " "
                                  << s.n << " " << s.k << " " << ta << tb << " fusion " << fusion);
  ExpectProduct(out, rig.Get(output), expected, magnitude, s.k);
}

TEST_P(MatmulTest, AllTransposesAndFusions) {
  for (const Accumulation& types : kAccumulations) {
    for (const Sizes& s : kSizes) {
      for (int mode = 0; mode < 20; ++mode) {
        CheckProduct(*this, {types.operands, types.sums}, s, mode & 1, mode & 2, mode / 4);
      }
    }
  }
}

// Several tiles each way, tiles that share a panel, several parts of k.
TEST_P(MatmulTest, ManyTiles) {
  for (const DType dtype : kFloatTypes) {
    CheckProduct(*this, {dtype, dtype}, {1100, 810, 9}, false, false, 4);
    CheckProduct(*this, {dtype, DType::kFloat32}, {1100, 810, 9}, true, true, 1);
    CheckProduct(*this, {dtype, dtype}, {40, 50, 2500}, false, true, 3);
  }
}

TEST_P(MatmulTest, ColumnViewsTouchNothingBeside) {
  const int64_t m = 5, n = 4, k = 3;
  for (const DType dtype : kFloatTypes) {
    const std::vector<float> a = RandomOf(dtype, m * 9), b = RandomOf(dtype, k * n);
    const std::vector<float> c = RandomOf(dtype, m * 7);
    const Tensor output = Put(c, {m, 7}, dtype);
    ASSERT_TRUE(Matmul(Put(a, {m, 9}, dtype).Columns(2, k), Put(b, {k, n}, dtype),
                       output.Columns(1, n), {}, *stream_)
                    .ok());
    const std::vector<float> result = Get(output);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < 7; ++j) {
        double expected = 0;
        for (int64_t l = 0; l < k && j >= 1 && j <= n; ++l) {
          expected += a[i * 9 + 2 + l] * static_cast<double>(b[l * n + j - 1]);
        }
        if (j < 1 || j > n) {
          EXPECT_EQ(result[i * 7 + j], c[i * 7 + j]);
        } else {
          EXPECT_NEAR(result[i * 7 + j], expected, 1e-5 + StoreError(dtype, expected));
        }
      }
    }
  }
}

TEST_P(MatmulTest, AddendMayBeTheOutput) {
  for (const Accumulation& types : kAccumulations) {
    const std::vector<float> c = {1, 2, 3, 4};
    const Tensor output = Put(c, {2, 2}, types.sums);
    MatmulOptions options;
    options.addend = output;
    ASSERT_TRUE(Matmul(Put({1, 0, 0, 1}, {2, 2}, types.operands),
                       Put({10, 20, 30, 40}, {2, 2}, types.operands), output, options, *stream_)
                    .ok());
    EXPECT_EQ(Get(output), (std::vector<float>{11, 22, 33, 44}));
  }
}

// Blocks of at most 256 rows, then their sums: (256 + m / 256 + 1) u sum|x|.
TEST_P(MatmulTest, AddRowSum) {
  for (const auto& [dtype, sums] : kAccumulations) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {37, 257}, {1000, 65}}) {
      const std::vector<float> input = RandomOf(dtype, m * n), before = RandomOf(sums, n);
      const Tensor output = Put(before, {n}, sums);
      ASSERT_TRUE(AddRowSum(Put(input, {m, n}, dtype), output, *stream_).ok());
      const std::vector<float> result = Get(output);
      for (int64_t j = 0; j < n; ++j) {
        double sum = before[j], size = std::abs(before[j]);
        for (int64_t i = 0; i < m; ++i) {
          sum += input[i * n + j];
          size += std::abs(input[i * n + j]);
        }
        ASSERT_NEAR(result[j], sum,
                    (257 + m / 256.0) * kUnitRoundoff * size + 1.01 * StoreError(sums, sum))
            << DTypeName(dtype);
      }
    }
  }
}

TEST_P(MatmulTest, RefusesWhatDoesNotFit) {
  const Tensor a = New({2, 3}), b = New({4, 5}), c = New({2, 5});
  absl::Status status = Matmul(a, b, c, {}, *stream_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("matmul: b is float32 (4, 5), not float32 (3, 5)"),
            std::string::npos)
      << status;
  // One element type for operands; the output has it too, or is fp32.
  const Tensor a16 = New({2, 3}, DType::kBFloat16), b16 = New({3, 5}, DType::kBFloat16);
  EXPECT_EQ(Matmul(a16, New({3, 5}), c, {}, *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Matmul(a16, b16, New({2, 5}, DType::kFloat16), {}, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Matmul(a, New({3, 5}), New({2, 5}, DType::kBFloat16), {}, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  MatmulOptions both;
  both.accumulate = true;
  both.bias = New({5});
  EXPECT_EQ(Matmul(a, New({3, 5}), c, both, *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AddRowSum(a, New({4}), *stream_).code(), absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(MatmulTest);

}  // namespace
}  // namespace tessera
