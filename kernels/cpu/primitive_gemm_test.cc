#include "kernels/cpu/primitive_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "kernels/float16.h"

namespace tessera::cpu {
namespace {

struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
};

template <typename S>
std::vector<S> Random(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<S> values(count);
  for (S& value : values) FromFloat(normal(random), &value);
  return values;
}

// k products and sums in any order, alpha and the addition: (k + 3) u.
template <typename S>
void Check(DType dtype, const Case& c) {
  std::mt19937 random(7);
  // Rows are longer than they need to be.
  const int64_t a_stride = (c.transpose_a ? c.m : c.k) + 3,
                b_stride = (c.transpose_b ? c.k : c.n) + 1;
  const int64_t c_stride = c.n + 2;
  const std::vector<S> a = Random<S>((c.transpose_a ? c.k : c.m) * a_stride, random);
  const std::vector<S> b = Random<S>((c.transpose_b ? c.n : c.k) * b_stride, random);
  std::vector<float> result(c.m * c_stride, 0.5f);
  ASSERT_TRUE(PrimitiveGemm(dtype, c.m, c.n, c.k, c.alpha, {a.data(), a_stride, c.transpose_a},
                            {b.data(), b_stride, c.transpose_b}, c.beta, result.data(), c_stride));
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c_stride; ++j) {
      if (j >= c.n) {
        ASSERT_EQ(result[i * c_stride + j], 0.5f);
        continue;
      }
      double sum = c.beta * 0.5, size = std::abs(sum);
      for (int64_t l = 0; l < c.k; ++l) {
        const double term = static_cast<double>(c.alpha) *
                            ToFloat(a[c.transpose_a ? l * a_stride + i : i * a_stride + l]) *
                            ToFloat(b[c.transpose_b ? j * b_stride + l : l * b_stride + j]);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(result[i * c_stride + j], sum, (c.k + 3) * 0x1p-24 * size) << i << " " << j;
    }
  }
}

const Case kCases[] = {{1, 1, 1, false, false, 1, 0},   {5, 7, 3, false, false, 1, 0},
                       {17, 33, 70, true, false, 1, 1}, {17, 33, 70, false, true, 0.5f, 0},
                       {9, 20, 11, true, true, 2, 1},   {17, 33, 70, false, true, 0.5f, 0}};

TEST(PrimitiveGemm, AgainstFp64) {
  for (const Case& c : kCases) Check<float>(DType::kFloat32, c);
}

TEST(PrimitiveGemm, Bf16AgainstFp64) {
  if (!HasNativeBf16()) GTEST_SKIP() << "this processor has neither AVX512_BF16 nor AMX";
  for (const Case& c : kCases) Check<BFloat16>(DType::kBFloat16, c);
}

TEST(PrimitiveGemm, RefusesWithoutTheUnits) {
  if (HasNativeBf16()) GTEST_SKIP() << "this processor has AVX512_BF16 or AMX";
  const BFloat16 one{0x3f80};
  float c;
  EXPECT_FALSE(PrimitiveGemm(DType::kBFloat16, 1, 1, 1, 1, {&one, 1}, {&one, 1}, 0, &c, 1));
}

TEST(PrimitiveGemm, ThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      for (const Case& c : kCases) Check<float>(DType::kFloat32, c);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera::cpu
