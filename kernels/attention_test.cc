#include "kernels/attention.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class AttentionTest : public KernelTest {
 protected:
  Tensor Workspace(const AttentionShape& shape, DType dtype = DType::kFloat32) {
    return New({AttentionWorkspaceBytes(shape, *device_, dtype)}, DType::kUInt8);
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

// d_qkv of sum(output * dy), in fp64 (FlashAttention, appendix B.2), with delta = dy . output from
// the given output: a kernel's, whose rounding is then no error of its backward.
std::vector<double> Gradient(const AttentionShape& s, const std::vector<double>& qkv,
                             const std::vector<double>& output, const std::vector<double>& lse,
                             const std::vector<float>& dy) {
  const int64_t columns = Columns(s), width = s.heads * s.head_size, size = s.head_size;
  std::vector<double> gradient(qkv.size());
  for (int64_t index = 0; index < s.batch * s.heads * s.time; ++index) {
    const int64_t b = index / s.time / s.heads, h = index / s.time % s.heads, i = index % s.time;
    const int64_t kv = width + h * s.kv_heads / s.heads * size, row = b * s.time + i;
    const double* q = &qkv[row * columns + h * size];
    const float* d_out = &dy[row * width + h * size];
    double delta = 0;
    for (int64_t c = 0; c < size; ++c) delta += d_out[c] * output[row * width + h * size + c];
    for (int64_t j = 0; j <= i; ++j) {
      const int64_t key = (b * s.time + j) * columns + kv, value = key + s.kv_heads * size;
      double score = 0, d_p = 0;
      for (int64_t c = 0; c < size; ++c) score += q[c] * qkv[key + c];
      for (int64_t c = 0; c < size; ++c) d_p += d_out[c] * qkv[value + c];
      const double p = std::exp(score * s.scale - lse[index]);
      const double d_score = s.scale * p * (d_p - delta);
      for (int64_t c = 0; c < size; ++c) {
        gradient[row * columns + h * size + c] += d_score * qkv[key + c];
        gradient[key + c] += d_score * q[c];
        gradient[value + c] += p * d_out[c];
      }
    }
  }
  return gradient;
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// A score errs by (H + 2) u |q||k| scale, at most about 1e-6 * 10 here; a probability by that
// relatively, plus exp's 1 ulp; an output is a convex combination of |v| < 5.
constexpr double kForward = 2e-5;

TEST_P(AttentionTest, ForwardAgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const AttentionShape& s : kShapes) {
      const int64_t rows = s.batch * s.time, width = s.heads * s.head_size;
      const std::vector<float> qkv = RandomOf(dtype, rows * Columns(s));
      const auto [q, k, v] = Unpack(s, Put(qkv, {rows, Columns(s)}, dtype));
      const Tensor output = New({rows, width}, dtype), lse = New({s.batch, s.heads, s.time});
      ASSERT_TRUE(AttentionForward(s, q, k, v, output, lse, Workspace(s, dtype), *stream_).ok());
      const Reference expected = Attend(s, Wide(qkv));
      const std::vector<float> result = Get(output), result_lse = Get(lse);
      for (size_t i = 0; i < result.size(); ++i) {
        ASSERT_NEAR(result[i], expected.output[i],
                    kForward + StoreError(dtype, expected.output[i]));
      }
      for (size_t i = 0; i < result_lse.size(); ++i) {
        ASSERT_NEAR(result_lse[i], expected.log_sum_exp[i], kForward);
      }
    }
  }
}

// Central differences of the fp64 forward, h = 1e-5: error below 1e-8.
TEST(AttentionReference, GradientIsTheDerivative) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const AttentionShape& s :
       {AttentionShape{2, 5, 3, 3, 2, 0.7f}, AttentionShape{1, 6, 4, 2, 1, 1.0f}}) {
    std::vector<double> qkv(s.batch * s.time * Columns(s));
    std::vector<float> dy(s.batch * s.time * s.heads * s.head_size);
    for (double& value : qkv) value = normal(random);
    for (float& value : dy) value = normal(random);
    const Reference r = Attend(s, qkv);
    const std::vector<double> gradient = Gradient(s, qkv, r.output, r.log_sum_exp, dy);
    const auto loss = [&] {
      const Reference moved = Attend(s, qkv);
      double sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += moved.output[i] * dy[i];
      return sum;
    };
    for (size_t i = 0; i < qkv.size(); ++i) {
      constexpr double h = 1e-5;
      const double saved = qkv[i];
      qkv[i] = saved + h;
      const double up = loss();
      qkv[i] = saved - h;
      const double down = loss();
      qkv[i] = saved;
      ASSERT_NEAR(gradient[i], (up - down) / (2 * h), 1e-7) << i;
    }
  }
}

// d_k and d_v add up to N / G * T terms of the forward's accuracy: 1e-4 of 1 + |gradient|.
TEST_P(AttentionTest, BackwardAgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const AttentionShape& s :
         {AttentionShape{2, 5, 3, 3, 2, 0.7f}, AttentionShape{1, 67, 2, 1, 3, 0.5f},
          AttentionShape{1, 6, 4, 2, 1, 1.0f}, AttentionShape{2, 130, 4, 2, 16, 0.25f}}) {
      const int64_t rows = s.batch * s.time, width = s.heads * s.head_size;
      const std::vector<float> qkv = RandomOf(dtype, rows * Columns(s));
      const std::vector<float> dy = RandomOf(dtype, rows * width);
      const auto [q, k, v] = Unpack(s, Put(qkv, {rows, Columns(s)}, dtype));
      const Tensor output = New({rows, width}, dtype), lse = New({s.batch, s.heads, s.time});
      const Tensor packed = New({rows, Columns(s)}, dtype), work = Workspace(s, dtype);
      const auto [d_q, d_k, d_v] = Unpack(s, packed);
      ASSERT_TRUE(AttentionForward(s, q, k, v, output, lse, work, *stream_).ok());
      ASSERT_TRUE(AttentionBackward(s, q, k, v, output, lse, Put(dy, {rows, width}, dtype), d_q,
                                    d_k, d_v, work, *stream_)
                      .ok());
      const std::vector<double> expected =
          Gradient(s, Wide(qkv), Wide(Get(output)), Wide(Get(lse)), dy);
      const std::vector<float> result = Get(packed);
      for (size_t i = 0; i < result.size(); ++i) {
        ASSERT_NEAR(result[i], expected[i],
                    1e-4 * (1 + std::abs(expected[i])) + StoreError(dtype, expected[i]))
            << DTypeName(dtype) << " element " << i;
      }
    }
  }
}

// 4096 tokens: 64 blocks. The workspace grows with T, not with its square. Sums of up to 4096 terms
// in sgemm: 4096 u = 2.4e-4 of their magnitudes at most, which are about 1 (p sums to 1; a key's
// column of p to about log(4096)).
TEST_P(AttentionTest, LongSequence) {
  const AttentionShape s{1, 4096, 1, 1, 4, 0.5f};
  const AttentionShape twice{1, 8192, 1, 1, 4, 0.5f};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EXPECT_LE(AttentionWorkspaceBytes(twice, *device_, dtype),
              2 * AttentionWorkspaceBytes(s, *device_, dtype));
    const std::vector<float> qkv = RandomOf(dtype, s.time * Columns(s));
    const std::vector<float> dy = RandomOf(dtype, s.time * 4);
    const auto [q, k, v] = Unpack(s, Put(qkv, {s.time, Columns(s)}, dtype));
    const Tensor output = New({s.time, 4}, dtype), lse = New({1, 1, s.time});
    const Tensor packed = New({s.time, Columns(s)}, dtype), work = Workspace(s, dtype);
    const auto [d_q, d_k, d_v] = Unpack(s, packed);
    ASSERT_TRUE(AttentionForward(s, q, k, v, output, lse, work, *stream_).ok());
    ASSERT_TRUE(AttentionBackward(s, q, k, v, output, lse, Put(dy, {s.time, 4}, dtype), d_q, d_k,
                                  d_v, work, *stream_)
                    .ok());
    const Reference expected = Attend(s, Wide(qkv));
    const std::vector<float> result = Get(output), gradient = Get(packed);
    for (size_t i = 0; i < result.size(); ++i) {
      ASSERT_NEAR(result[i], expected.output[i], 2.4e-4 + StoreError(dtype, expected.output[i]));
    }
    const std::vector<double> wanted = Gradient(s, Wide(qkv), Wide(result), Wide(Get(lse)), dy);
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(gradient[i], wanted[i],
                  2.4e-4 * (1 + std::abs(wanted[i])) + StoreError(dtype, wanted[i]));
    }
  }
}

// Rows [past, past + T) of the whole, from a cache with room for more tokens.
TEST_P(AttentionTest, QueriesAfterACache) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [time, past, room] :
         {std::tuple{1, 0, 1}, {1, 70, 3}, {66, 9, 0}, {3, 5, 8}}) {
      const AttentionShape whole{2, past + time, 4, 2, 8, 0.35f};
      const int64_t columns = Columns(whole), width = 32, kv = 16, rows = past + time + room;
      const std::vector<float> qkv = RandomOf(dtype, 2 * whole.time * columns);
      std::vector<float> q, k(2 * rows * kv, NAN), v(2 * rows * kv, NAN);  // room is not read
      for (int64_t i = 0; i < 2 * whole.time; ++i) {
        const float* row = &qkv[i * columns];
        const int64_t to = (i / whole.time * rows + i % whole.time) * kv;
        if (i % whole.time >= past) q.insert(q.end(), row, row + width);
        std::copy(row + width, row + width + kv, &k[to]);
        std::copy(row + width + kv, row + columns, &v[to]);
      }
      AttentionShape s = whole;
      s.time = time;
      s.past = past;
      s.key_rows = rows;
      const Tensor output = New({2 * time, width}, dtype), lse = New({2, 4, time});
      ASSERT_TRUE(AttentionForward(s, Put(q, {2 * time, width}, dtype),
                                   Put(k, {2 * rows, kv}, dtype), Put(v, {2 * rows, kv}, dtype),
                                   output, lse, Workspace(s, dtype), *stream_)
                      .ok());
      const Reference expected = Attend(whole, Wide(qkv));
      const std::vector<float> result = Get(output), result_lse = Get(lse);
      for (int64_t i = 0; i < 2 * time * width; ++i) {
        const int64_t row = i / width / time * whole.time + past + i / width % time;
        const double wanted = expected.output[row * width + i % width];
        ASSERT_NEAR(result[i], wanted, kForward + StoreError(dtype, wanted)) << time << " " << past;
      }
      for (int64_t i = 0; i < 8 * time; ++i) {
        ASSERT_NEAR(result_lse[i], expected.log_sum_exp[i / time * whole.time + past + i % time],
                    kForward);
      }
    }
  }
}

TEST_P(AttentionTest, SurvivesLargeScores) {
  const AttentionShape s{1, 3, 1, 1, 1, 1.0f};
  const Tensor q = Put(std::vector<float>{200, 200, -200}, {3, 1});
  const Tensor k = Put(std::vector<float>{1, 2, 3}, {3, 1});
  const Tensor output = New({3, 1});
  ASSERT_TRUE(AttentionForward(s, q, k, Put({10, 20, 30}, {3, 1}), output, New({1, 1, 3}),
                               Workspace(s), *stream_)
                  .ok());
  EXPECT_EQ(Get(output), (std::vector<float>{10, 20, 10}));
}

TEST_P(AttentionTest, RefusesWhatDoesNotFit) {
  const AttentionShape s{1, 4, 3, 2, 1, 1.0f};
  const Tensor t = New({4, 3});
  EXPECT_EQ(
      AttentionForward(s, t, t, t, t, New({1, 3, 4}), New({1024}, DType::kUInt8), *stream_).code(),
      absl::StatusCode::kInvalidArgument);
  const AttentionShape good{1, 4, 3, 3, 1, 1.0f};
  EXPECT_EQ(
      AttentionForward(good, t, t, t, t, New({1, 3, 4}), New({8}, DType::kUInt8), *stream_).code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_P(AttentionTest, RefusesKeysThatDoNotFit) {
  const Tensor q = New({2, 3}), k = New({8, 3}), lse = New({1, 3, 2});
  AttentionShape s{1, 2, 3, 3, 1, 1.0f, 6, 7};  // seven rows hold no eight keys
  EXPECT_EQ(AttentionForward(s, q, k, k, q, lse, Workspace(s), *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  s.key_rows = 8;
  EXPECT_TRUE(AttentionForward(s, q, k, k, q, lse, Workspace(s), *stream_).ok());
  s.keys = 8;  // causal attention has past + T
  EXPECT_FALSE(AttentionForward(s, q, k, k, q, lse, Workspace(s), *stream_).ok());
  s.causal = false;  // and other attention no past
  EXPECT_FALSE(AttentionForward(s, q, k, k, q, lse, Workspace(s), *stream_).ok());
  s.past = 0;
  EXPECT_TRUE(AttentionForward(s, q, k, k, q, lse, Workspace(s), *stream_).ok());
  s.query_rows = 1;
  EXPECT_FALSE(AttentionForward(s, q, k, k, q, lse, Workspace(s), *stream_).ok());
}

TESSERA_INSTANTIATE_KERNEL_TEST(AttentionTest);

}  // namespace
}  // namespace tessera
