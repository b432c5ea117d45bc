#include "kernels/attention.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class AttentionTest : public KernelTest {
 protected:
  Tensor Workspace(const AttentionShape& shape) {
    return New({AttentionWorkspaceBytes(shape, *device_)}, DType::kUInt8);
  }
};

// One token, one row more than a block, grouped kv heads, odd head sizes.
const AttentionShape kShapes[] = {{1, 1, 1, 1, 1, 1.0f},     {2, 37, 3, 3, 8, 0.35f},
                                  {1, 65, 2, 1, 5, 0.4f},    {2, 130, 4, 2, 16, 0.25f},
                                  {3, 64, 1, 1, 33, 0.174f}, {1, 7, 6, 2, 3, 1.5f}};

// Packed q | k | v of one matrix: rows (B*T), (N + 2G) * H columns.
int64_t Columns(const AttentionShape& s) { return (s.heads + 2 * s.kv_heads) * s.head_size; }

struct Reference {
  std::vector<double> output, log_sum_exp;
};

Reference Attend(const AttentionShape& s, const std::vector<double>& qkv) {
  const int64_t columns = Columns(s), width = s.heads * s.head_size;
  Reference r;
  r.output.resize(s.batch * s.time * width);
  r.log_sum_exp.resize(s.batch * s.heads * s.time);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = h * s.kv_heads / s.heads;
      for (int64_t i = 0; i < s.time; ++i) {
        const double* q = &qkv[(b * s.time + i) * columns + h * s.head_size];
        std::vector<double> p(i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          const double* k = &qkv[(b * s.time + j) * columns + width + kv * s.head_size];
          double score = 0;
          for (int64_t c = 0; c < s.head_size; ++c) score += q[c] * k[c];
          sum += p[j] = std::exp(score * s.scale);
        }
        r.log_sum_exp[(b * s.heads + h) * s.time + i] = std::log(sum);
        for (int64_t c = 0; c < s.head_size; ++c) {
          double out = 0;
          for (int64_t j = 0; j <= i; ++j) {
            out += p[j] / sum *
                   qkv[(b * s.time + j) * columns + width + (s.kv_heads + kv) * s.head_size + c];
          }
          r.output[(b * s.time + i) * width + h * s.head_size + c] = out;
        }
      }
    }
  }
  return r;
}

struct Views {
  Tensor q, k, v;
};
Views Unpack(const AttentionShape& s, const Tensor& packed) {
  const int64_t width = s.heads * s.head_size, kv = s.kv_heads * s.head_size;
  return {packed.Columns(0, width), packed.Columns(width, kv), packed.Columns(width + kv, kv)};
}

// A score errs by (H + 2) u |q||k| scale, at most about 1e-6 * 10 here; a probability by that
// relatively, plus exp's 1 ulp; an output is a convex combination of |v| < 5.
constexpr double kForward = 2e-5;

TEST_P(AttentionTest, ForwardAgainstFp64) {
  for (const AttentionShape& s : kShapes) {
    const int64_t rows = s.batch * s.time, width = s.heads * s.head_size;
    const std::vector<float> qkv = Random(rows * Columns(s));
    const auto [q, k, v] = Unpack(s, Put(qkv, {rows, Columns(s)}));
    const Tensor output = New({rows, width}), lse = New({s.batch, s.heads, s.time});
    ASSERT_TRUE(CausalAttentionForward(s, q, k, v, output, lse, Workspace(s), *stream_).ok());
    const Reference expected = Attend(s, {qkv.begin(), qkv.end()});
    const std::vector<float> result = Get(output), result_lse = Get(lse);
    for (size_t i = 0; i < result.size(); ++i) {
      ASSERT_NEAR(result[i], expected.output[i], kForward);
    }
    for (size_t i = 0; i < result_lse.size(); ++i) {
      ASSERT_NEAR(result_lse[i], expected.log_sum_exp[i], kForward);
    }
  }
}

// Central differences of the fp64 reference, h = 1e-5: error below 1e-8. d_k and d_v add up to
// N / G * T terms of the forward's accuracy: 1e-4 of 1 + |gradient|.
TEST_P(AttentionTest, BackwardAgainstFiniteDifferences) {
  for (const AttentionShape& s :
       {AttentionShape{2, 5, 3, 3, 2, 0.7f}, AttentionShape{1, 67, 2, 1, 3, 0.5f},
        AttentionShape{1, 6, 4, 2, 1, 1.0f}}) {
    const int64_t rows = s.batch * s.time, width = s.heads * s.head_size;
    const std::vector<float> qkv = Random(rows * Columns(s)), dy = Random(rows * width);
    const auto [q, k, v] = Unpack(s, Put(qkv, {rows, Columns(s)}));
    const Tensor output = New({rows, width}), lse = New({s.batch, s.heads, s.time});
    const Tensor packed = New({rows, Columns(s)});
    const auto [d_q, d_k, d_v] = Unpack(s, packed);
    ASSERT_TRUE(CausalAttentionForward(s, q, k, v, output, lse, Workspace(s), *stream_).ok());
    ASSERT_TRUE(CausalAttentionBackward(s, q, k, v, output, lse, Put(dy, {rows, width}), d_q, d_k,
                                        d_v, Workspace(s), *stream_)
                    .ok());
    const std::vector<float> result = Get(packed);
    std::vector<double> wide(qkv.begin(), qkv.end());
    auto loss = [&] {
      const Reference r = Attend(s, wide);
      double sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += r.output[i] * dy[i];
      return sum;
    };
    for (size_t i = 0; i < wide.size(); ++i) {
      constexpr double h = 1e-5;
      const double saved = wide[i];
      wide[i] = saved + h;
      const double up = loss();
      wide[i] = saved - h;
      const double down = loss();
      wide[i] = saved;
      const double expected = (up - down) / (2 * h);
      ASSERT_NEAR(result[i], expected, 1e-4 * (1 + std::abs(expected))) << "element " << i;
    }
  }
}

TEST_P(AttentionTest, SurvivesLargeScores) {
  const AttentionShape s{1, 3, 1, 1, 1, 1.0f};
  const Tensor q = Put(std::vector<float>{200, 200, -200}, {3, 1});
  const Tensor k = Put(std::vector<float>{1, 2, 3}, {3, 1});
  const Tensor output = New({3, 1});
  ASSERT_TRUE(CausalAttentionForward(s, q, k, Put({10, 20, 30}, {3, 1}), output, New({1, 1, 3}),
                                     Workspace(s), *stream_)
                  .ok());
  EXPECT_EQ(Get(output), (std::vector<float>{10, 20, 10}));
}

TEST_P(AttentionTest, RefusesWhatDoesNotFit) {
  const AttentionShape s{1, 4, 3, 2, 1, 1.0f};
  const Tensor t = New({4, 3});
  EXPECT_EQ(
      CausalAttentionForward(s, t, t, t, t, New({1, 3, 4}), New({1024}, DType::kUInt8), *stream_)
          .code(),
      absl::StatusCode::kInvalidArgument);
  const AttentionShape good{1, 4, 3, 3, 1, 1.0f};
  EXPECT_EQ(
      CausalAttentionForward(good, t, t, t, t, New({1, 3, 4}), New({8}, DType::kUInt8), *stream_)
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(AttentionTest);

}  // namespace
}  // namespace tessera
