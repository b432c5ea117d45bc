#include "kernels/swiglu.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class SwiGluTest : public KernelTest {};

double Silu(double x) { return x / (1 + std::exp(-x)); }

double SiluSlope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

struct Matrices {
  int64_t rows, columns;
  std::vector<float> gate, up;
};

// From -100, where exp(-x) overflows fp32, to 30.
Matrices MakeMatrices(KernelRig& rig, DType dtype, int64_t rows, int64_t columns) {
  Matrices m{rows, columns, rig.RandomOf(dtype, rows * columns, 3),
             rig.RandomOf(dtype, rows * columns)};
  const float edges[] = {0, -0.0f, -100, -88, 30};
  for (size_t i = 0; i < std::size(edges) && i < m.gate.size(); ++i) m.gate[i] = edges[i];
  return m;
}

// gate and up as halves of one matrix.
Tensor Pack(KernelRig& rig, const Matrices& m, DType dtype) {
  std::vector<float> packed;
  for (int64_t i = 0; i < m.rows; ++i) {
    const auto gate = m.gate.begin() + i * m.columns, up = m.up.begin() + i * m.columns;
    packed.insert(packed.end(), gate, gate + m.columns);
    packed.insert(packed.end(), up, up + m.columns);
  }
  return rig.Put(packed, {m.rows, 2 * m.columns}, dtype);
}

TEST_P(SwiGluTest, SlopeIsTheDerivative) {
  for (double x = -20; x < 20; x += 0.37) {
    EXPECT_NEAR(SiluSlope(x), (Silu(x + 1e-5) - Silu(x - 1e-5)) / 2e-5, 1e-9);
  }
}

// exp errs by an ulp, sum, quotient and product by a rounding each: 5 u, and u |x| where x is large
// through exp's argument, which silu damps. Below -88 the result is nearly 0.
TEST_P(SwiGluTest, AgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 37}, {9, 1030}}) {
      const Matrices m = MakeMatrices(*this, dtype, rows, columns);
      const std::vector<float> dy = RandomOf(dtype, rows * columns);
      const Tensor packed = Pack(*this, m, dtype), output = New({rows, columns}, dtype);
      const Tensor gate = packed.Columns(0, columns), up = packed.Columns(columns, columns);
      ASSERT_TRUE(SwiGluForward(gate, up, output, *stream_).ok());
      const std::vector<float> y = Get(output);
      // The gradients take their operands' memory.
      ASSERT_TRUE(
          SwiGluBackward(gate, up, Put(dy, {rows, columns}, dtype), gate, up, *stream_).ok());
      const std::vector<float> gradients = Get(packed);
      for (int64_t i = 0; i < rows * columns; ++i) {
        const double x = m.gate[i], u = m.up[i];
        const double forward = Silu(x) * u;
        const int64_t at = i / columns * 2 * columns + i % columns;
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " gate " << x << " up " << u);
        ASSERT_NEAR(y[i], forward,
                    8 * kUnitRoundoff * std::abs(forward) + 1e-35 + StoreError(dtype, forward));
        const double d_gate = dy[i] * u * SiluSlope(x), d_up = dy[i] * Silu(x);
        // The slope's terms cancel where it is 0: its error is relative to 1.1.
        ASSERT_NEAR(gradients[at], d_gate,
                    12 * kUnitRoundoff * std::abs(dy[i] * u) + StoreError(dtype, d_gate));
        ASSERT_NEAR(gradients[at + columns], d_up,
                    8 * kUnitRoundoff * std::abs(d_up) + 1e-35 + StoreError(dtype, d_up));
      }
    }
  }
}

TEST_P(SwiGluTest, RefusesWhatDoesNotFit) {
  const Tensor a = New({2, 3});
  EXPECT_EQ(SwiGluForward(a, New({3, 3}), a, *stream_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SwiGluBackward(a, a, New({2, 3}, DType::kFloat16), a, a, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(SwiGluTest);

}  // namespace
}  // namespace tessera
