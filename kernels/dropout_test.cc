#include "kernels/dropout.h"

#include "kernels/conformance.h"
#include "kernels/philox.h"

namespace tessera {
namespace {

class DropoutTest : public KernelTest {};

bool Dropped(const DropoutOptions& options, uint64_t index) {
  const uint32_t word = PhiloxBlock(options.seed, options.stream, index / 4)[index % 4];
  return word < std::nearbyint(static_cast<double>(options.probability) * 0x1p32);
}

// The mask by its definition, element by element; kept elements have one rounding of the scale and
// one of the product.
TEST_P(DropoutTest, AgainstTheDefinition) {
  for (const DType dtype : kFloatTypes) {
    for (const float probability : {0.0f, 0.1f, 0.5f, 0.99999994f}) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 20}) {
        DropoutOptions options{probability, 0x123456789abcdef0, 0xfedcba9876543210,
                               static_cast<int64_t>(first), 70};
        const int64_t m = 5, n = 67;
        const std::vector<float> x = RandomOf(dtype, m * n);
        const Tensor output = New({m, n}, dtype);
        ASSERT_TRUE(Dropout(Put(x, {m, n}, dtype), options, output, *stream_).ok());
        const std::vector<float> result = Get(output);
        for (int64_t i = 0; i < m * n; ++i) {
          const bool dropped = Dropped(options, first + i / n * 70 + i % n);
          const double expected = dropped ? 0 : x[i] / (1 - static_cast<double>(probability));
          // fp16 overflows at the last probability.
          if (std::abs(expected) > 65000 && dtype == DType::kFloat16) continue;
          ASSERT_NEAR(result[i], expected,
                      3 * kUnitRoundoff * std::abs(expected) + StoreError(dtype, expected))
              << i << " " << DTypeName(dtype);
        }
      }
    }
  }
}

// Columns of a matrix drop what the whole drops; in place.
TEST_P(DropoutTest, ShardsEqualTheWhole) {
  const int64_t m = 9, n = 50, cut = 17;
  const std::vector<float> x = Random(m * n);
  DropoutOptions options{0.3f, 7, 11, 1000, 0};
  const Tensor whole = Put(x, {m, n}), parts = Put(x, {m, n});
  ASSERT_TRUE(Dropout(whole, options, whole, *stream_).ok());
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, cut}, {cut, n - cut}}) {
    DropoutOptions shard = options;
    shard.first_index += begin;
    shard.row_elements = n;
    const Tensor view = parts.Columns(begin, count);
    ASSERT_TRUE(Dropout(view, shard, view, *stream_).ok());
  }
  EXPECT_EQ(Get(whole), Get(parts));
}

// 10^6 draws: the share dropped is within 4 sigma of p; seeds and streams differ.
TEST_P(DropoutTest, DropsTheShare) {
  const int64_t n = 1000000;
  const Tensor ones = Put(std::vector<float>(n, 1), {1, n}), output = New({1, n});
  std::vector<std::vector<float>> results;
  for (const auto& [seed, stream] : {std::pair{1, 1}, {1, 2}, {2, 1}}) {
    const DropoutOptions options{0.1f, static_cast<uint64_t>(seed), static_cast<uint64_t>(stream)};
    ASSERT_TRUE(Dropout(ones, options, output, *stream_).ok());
    results.push_back(Get(output));
    const double dropped =
        static_cast<double>(std::count(results.back().begin(), results.back().end(), 0.0f));
    EXPECT_NEAR(dropped / n, 0.1, 4 * std::sqrt(0.1 * 0.9 / n));
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
}

TEST_P(DropoutTest, RefusesWhatDoesNotFit) {
  const Tensor x = New({2, 4});
  for (const float bad : {-0.1f, 1.0f, NAN}) {
    EXPECT_EQ(Dropout(x, {bad}, x, *stream_).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(Dropout(x, {0.1f, 0, 0, 0, 3}, x, *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Dropout(x, {0.1f, 0, 0, -1, 0}, x, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Dropout(x, {}, New({2, 5}), *stream_).code(), absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(DropoutTest);

}  // namespace
}  // namespace tessera
