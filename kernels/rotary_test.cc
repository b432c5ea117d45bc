#include "kernels/rotary.h"

#include <numbers>

#include "kernels/conformance.h"

namespace tessera {
namespace {

class RotaryTest : public KernelTest {};

// Frequencies by their definition, in fp64.
std::vector<double> Frequencies(const RotaryOptions& options, int64_t head_size) {
  std::vector<double> result;
  for (int64_t j = 0; j < head_size / 2; ++j) {
    double frequency = std::pow(options.theta, -2.0 * j / head_size);
    if (options.scaling.has_value()) {
      const auto& [factor, low, high, length] = *options.scaling;
      const double wavelength = 2 * std::numbers::pi / frequency;
      const double smooth = (length / wavelength - low) / (high - low);
      if (wavelength > length / low) {
        frequency /= factor;
      } else if (wavelength >= length / high) {
        frequency = (1 - smooth) * frequency / factor + smooth * frequency;
      }
    }
    result.push_back(frequency);
  }
  return result;
}

const RotaryOptions kPlain{10000, std::nullopt}, kLong{500000, Llama3RotaryScaling{}};

// An angle of position * frequency radians has at most seven fp32 roundings of the frequency and
// one of the product: 8 u relative, so cos and sin err by 8 u angle + 1 ulp of theirs.
TEST_P(RotaryTest, TableAgainstFp64) {
  for (const RotaryOptions& options : {kPlain, kLong}) {
    for (const auto& [time, size, first] :
         {std::tuple{1, 2, 0}, {37, 10, 5}, {100, 64, 8000}, {9, 128, 130000}}) {
      const std::vector<int32_t> positions = RandomIds(time, 0, 100000);
      for (const bool given : {false, true}) {
        const Tensor table = New({time, size});
        ASSERT_TRUE(RotaryTable(options, first, given ? PutIds(positions, {time}) : Tensor(), table,
                                *stream_)
                        .ok());
        const std::vector<float> result = Get(table);
        const std::vector<double> frequencies = Frequencies(options, size);
        for (int64_t t = 0; t < time; ++t) {
          for (int64_t j = 0; j < size / 2; ++j) {
            const double angle = (given ? positions[t] : first + t) * frequencies[j];
            const double error = 8 * kUnitRoundoff * angle + 2 * kUnitRoundoff;
            ASSERT_NEAR(result[t * size + j], std::cos(angle), error) << t << " " << j;
            ASSERT_NEAR(result[t * size + size / 2 + j], std::sin(angle), error) << t << " " << j;
          }
        }
      }
    }
  }
}

// Llama 3.1 8B: of 64 frequencies the first 29 stay, those from 36 on are divided by 8.
TEST_P(RotaryTest, ScalingLeavesShortWavelengths) {
  const Tensor plain = New({1, 128}), scaled = New({1, 128});
  ASSERT_TRUE(RotaryTable({500000, std::nullopt}, 1, Tensor(), plain, *stream_).ok());
  ASSERT_TRUE(RotaryTable(kLong, 1, Tensor(), scaled, *stream_).ok());
  const std::vector<float> before = Get(plain), after = Get(scaled);
  for (int64_t j = 0; j < 64; ++j) {
    const double angle = std::pow(500000.0, -2.0 * j / 128), wavelength = 2 * M_PI / angle;
    if (wavelength < 8192 / 4.0) {
      EXPECT_EQ(after[64 + j], before[64 + j]) << j;
    } else if (wavelength > 8192) {
      EXPECT_NEAR(after[64 + j], std::sin(angle / 8), 1e-6 * angle) << j;
    } else {
      EXPECT_LT(after[64 + j], before[64 + j]) << j;
      EXPECT_GT(after[64 + j], before[64 + j] / 8) << j;
    }
  }
}

// Two products and a sum: 3 u of their magnitudes, then the rounding. Columns beside stay.
TEST_P(RotaryTest, RotatesColumnsInPlace) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [batch, time, heads, size] :
         {std::tuple{1, 1, 1, 2}, {2, 5, 3, 6}, {3, 7, 2, 70}, {1, 9, 2, 128}}) {
      const int64_t m = batch * time, columns = heads * size, half = size / 2;
      const std::vector<float> x = RandomOf(dtype, m * (columns + 3));
      const Tensor packed = Put(x, {m, columns + 3}, dtype), table = New({time, size});
      ASSERT_TRUE(RotaryTable(kPlain, 3, Tensor(), table, *stream_).ok());
      for (const bool inverse : {false, true}) {
        const std::vector<float> before = Get(packed), angles = Get(table);
        ASSERT_TRUE(Rotary(table, inverse, packed.Columns(2, columns), *stream_).ok());
        const std::vector<float> result = Get(packed);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t c = 0; c < columns + 3; ++c) {
            const int64_t at = i * (columns + 3) + c, j = (c - 2) % size;
            if (c < 2 || c >= columns + 2) {
              ASSERT_EQ(result[at], before[at]);
              continue;
            }
            const double cosine = angles[i % time * size + j % half];
            const double sine = angles[i % time * size + half + j % half] * (inverse ? -1 : 1);
            const double other = j < half ? -before[at + half] : before[at - half];
            const double expected = before[at] * cosine + other * sine;
            ASSERT_NEAR(result[at], expected,
                        3 * kUnitRoundoff * (std::abs(before[at]) + std::abs(other)) +
                            StoreError(dtype, expected))
                << DTypeName(dtype) << " " << i << " " << c;
          }
        }
      }
    }
  }
}

// The inverse is the transpose, which is the gradient: <R x, y> = <x, R^-1 y>.
TEST_P(RotaryTest, InverseIsTheGradient) {
  const int64_t time = 6, size = 8;
  const std::vector<float> x = Random(time * size), y = Random(time * size);
  const Tensor table = New({time, size}), rx = Put(x, {time, size}), ry = Put(y, {time, size});
  ASSERT_TRUE(RotaryTable(kPlain, 0, Tensor(), table, *stream_).ok());
  ASSERT_TRUE(Rotary(table, false, rx, *stream_).ok());
  ASSERT_TRUE(Rotary(table, true, ry, *stream_).ok());
  double left = 0, right = 0;
  for (int64_t i = 0; i < time * size; ++i) {
    left += Get(rx)[i] * static_cast<double>(y[i]);
    right += Get(ry)[i] * static_cast<double>(x[i]);
  }
  EXPECT_NEAR(left, right, 4 * kUnitRoundoff * time * size);
}

TEST_P(RotaryTest, RefusesWhatDoesNotFit) {
  const Tensor table = New({4, 6});
  EXPECT_EQ(RotaryTable(kPlain, 0, Tensor(), New({4, 5}), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RotaryTable(kPlain, -1, Tensor(), table, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RotaryTable({0, std::nullopt}, 0, Tensor(), table, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      RotaryTable({1e4, Llama3RotaryScaling{8, 4, 4, 8192}}, 0, Tensor(), table, *stream_).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RotaryTable(kPlain, 0, PutIds({1, 2, 3}, {3}), table, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Rotary(table, false, New({8, 9}), *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Rotary(table, false, New({6, 12}), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(RotaryTest);

}  // namespace
}  // namespace tessera
