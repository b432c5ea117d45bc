// Attention over parts of the keys, causal or not, and what merging makes of it. The reference is
// one softmax over a mask in fp64, its gradient by central differences.
#include "kernels/attention_merge.h"

#include <limits>

#include "kernels/attention.h"
#include "kernels/conformance.h"
#include "kernels/matrix_copy.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class AttentionMergeTest : public KernelTest {
 protected:
  Tensor Workspace(const AttentionShape& shape, DType dtype) {
    return New({std::max<int64_t>(1, AttentionWorkspaceBytes(shape, *device_, dtype))},
               DType::kUInt8);
  }
};

// Dense rows: q (B*T, N*H), k and v (B*K, G*H).
struct Inputs {
  std::vector<double> q, k, v;
};
struct Outputs {
  std::vector<double> output, log_sum_exp;
};

int64_t Seen(const AttentionShape& s, int64_t t) { return s.causal ? s.past + t + 1 : s.keys; }

Outputs Attend(const AttentionShape& s, const Inputs& in) {
  const int64_t size = s.head_size, width = s.heads * size, kv_width = s.kv_heads * size;
  Outputs out;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.time; ++t) {
        double sum = 0;
        for (int64_t j = 0; j < Seen(s, t); ++j) {
          double score = 0;
          for (int64_t c = 0; c < size; ++c) {
            score += in.q[(b * s.time + t) * width + h * size + c] *
                     in.k[(b * s.num_keys() + j) * kv_width + h * s.kv_heads / s.heads * size + c];
          }
          sum += std::exp(s.scale * score);
        }
        out.log_sum_exp.push_back(std::log(sum));
      }
    }
  }
  out.output.resize(in.q.size());
  for (size_t i = 0; i < out.output.size(); ++i) {
    const int64_t b = i / width / s.time, t = i / width % s.time, h = i % width / size;
    const int64_t kv = h * s.kv_heads / s.heads * size;
    for (int64_t j = 0; j < Seen(s, t); ++j) {
      const int64_t key = (b * s.num_keys() + j) * kv_width + kv;
      double score = 0;
      for (int64_t c = 0; c < size; ++c) {
        score += in.q[(b * s.time + t) * width + h * size + c] * in.k[key + c];
      }
      out.output[i] += std::exp(s.scale * score - out.log_sum_exp[(b * s.heads + h) * s.time + t]) *
                       in.v[key + i % size];
    }
  }
  return out;
}

// The derivative of sum(output * dy) by each element of `values`, which is one of in's; h = 1e-5:
// error below 1e-8.
std::vector<double> Derivative(const AttentionShape& s, Inputs& in, std::vector<double>& values,
                               const std::vector<float>& dy) {
  const auto loss = [&] {
    const Outputs out = Attend(s, in);
    double sum = 0;
    for (size_t i = 0; i < dy.size(); ++i) sum += out.output[i] * dy[i];
    return sum;
  };
  std::vector<double> gradient;
  for (double& value : values) {
    const double saved = value, h = 1e-5;
    value = saved + h;
    const double up = loss();
    value = saved - h;
    gradient.push_back((up - loss()) / (2 * h));
    value = saved;
  }
  return gradient;
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Sequences of `from` rows, `stride` rows apart and then some; NaN between them.
std::vector<float> Spread(const std::vector<float>& dense, int64_t batch, int64_t from,
                          int64_t stride, int64_t columns, bool whole_last) {
  std::vector<float> rows(((batch - 1) * stride + (whole_last ? stride : from)) * columns, NAN);
  for (int64_t b = 0; b < batch; ++b) {
    std::copy_n(dense.begin() + b * from * columns, from * columns,
                rows.begin() + b * stride * columns);
  }
  return rows;
}
std::vector<float> Gather(const std::vector<float>& rows, int64_t batch, int64_t from,
                          int64_t stride, int64_t columns) {
  std::vector<float> dense;
  for (int64_t b = 0; b < batch; ++b) {
    const auto begin = rows.begin() + b * stride * columns;
    dense.insert(dense.end(), begin, begin + from * columns);
  }
  return dense;
}

// Terms as in attention_test.cc: a softmax in fp32 errs by less than 2e-5, a sum of up to 100 such
// terms by 1e-4 of 1 + |sum|. Sixteen-bit outputs are rounded once, and so is the output from which
// backward takes dy . output: H roundoffs of 4, times |k| < 4 in d_q, and T times |q| < 4 in d_k.
constexpr double kError = 1e-4;

TEST_P(AttentionMergeTest, PartsAgainstFp64) {
  const AttentionShape kShapes[] = {
      {.batch = 2, .time = 3, .heads = 4, .kv_heads = 2, .head_size = 3, .past = 2},
      {.batch = 2,
       .time = 3,
       .heads = 2,
       .kv_heads = 1,
       .head_size = 5,
       .causal = false,
       .keys = 4},
      {.batch = 2,
       .time = 2,
       .heads = 2,
       .kv_heads = 2,
       .head_size = 2,
       .key_rows = 9,
       .causal = false,
       .keys = 7,
       .query_rows = 5},
      {.batch = 1,
       .time = 66,
       .heads = 1,
       .kv_heads = 1,
       .head_size = 1,
       .past = 3,
       .key_rows = 70,
       .query_rows = 67},
      {.batch = 3,
       .time = 65,
       .heads = 1,
       .kv_heads = 1,
       .head_size = 1,
       .key_rows = 2,
       .causal = false,
       .keys = 1,
       .query_rows = 80},
  };
  for (const DType dtype : kFloatTypes) {
    for (const AttentionShape& s : kShapes) {
      for (const DType sums : {dtype, DType::kFloat32}) {
        const int64_t width = s.heads * s.head_size, kv_width = s.kv_heads * s.head_size;
        const int64_t keys = s.num_keys(), key_rows = s.num_key_rows();
        const int64_t query_rows = s.num_query_rows();
        const std::vector<float> q = RandomOf(dtype, s.batch * s.time * width);
        const std::vector<float> dy = RandomOf(dtype, s.batch * s.time * width);
        const std::vector<float> k = RandomOf(dtype, s.batch * keys * kv_width);
        const std::vector<float> v = RandomOf(dtype, s.batch * keys * kv_width);
        const Shape q_shape{(s.batch - 1) * query_rows + s.time, width};
        const Shape k_shape{s.batch * key_rows, kv_width};
        const auto put_q = [&](const std::vector<float>& x) {
          return Put(Spread(x, s.batch, s.time, query_rows, width, false), q_shape, dtype);
        };
        const auto put_k = [&](const std::vector<float>& x) {
          return Put(Spread(x, s.batch, keys, key_rows, kv_width, true), k_shape, dtype);
        };
        const Tensor tq = put_q(q), tk = put_k(k), tv = put_k(v);
        const Tensor output = New(q_shape, sums);
        // Its rows are columns of a wider matrix.
        const Tensor lse_rows = New({s.batch * s.heads, s.time + 3}).Columns(2, s.time);
        const Tensor lse(device_.get(), DType::kFloat32, {s.batch, s.heads, s.time},
                         lse_rows.address(), lse_rows.row_stride());
        const Tensor work = Workspace(s, dtype);
        const Tensor d_q = New(q_shape, sums), d_k = New(k_shape, sums), d_v = New(k_shape, sums);
        ASSERT_TRUE(AttentionForward(s, tq, tk, tv, output, lse, work, *stream_).ok());
        ASSERT_TRUE(
            AttentionBackward(s, tq, tk, tv, output, lse, put_q(dy), d_q, d_k, d_v, work, *stream_)
                .ok());
        Inputs in{Wide(q), Wide(k), Wide(v)};
        const Outputs out = Attend(s, in);
        const double roundoff = sums == DType::kFloat32 ? 0 : UnitRoundoff(sums);
        const auto expect = [&](const std::vector<float>& result,
                                const std::vector<double>& expected, double error,
                                const char* what) {
          ASSERT_EQ(result.size(), expected.size());
          for (size_t i = 0; i < result.size(); ++i) {
            ASSERT_NEAR(result[i], expected[i],
                        error * (1 + std::abs(expected[i])) + StoreError(sums, expected[i]))
                << what << " " << i << " " << DTypeName(dtype) << " time " << s.time;
          }
        };
        const auto get_q = [&](const Tensor& t) {
          return Gather(Get(t), s.batch, s.time, query_rows, width);
        };
        const auto get_k = [&](const Tensor& t) {
          return Gather(Get(t), s.batch, keys, key_rows, kv_width);
        };
        const double delta = s.head_size * roundoff * 4 * 4;
        expect(get_q(output), out.output, kError, "output");
        const Tensor dense_lse = New({s.batch * s.heads, s.time});
        ASSERT_TRUE(CopyMatrix(lse_rows, dense_lse, *stream_).ok());
        expect(Get(dense_lse), out.log_sum_exp, kError, "log_sum_exp");
        if (s.time > 10 && dtype != DType::kFloat32) continue;  // differences take their time
        expect(get_q(d_q), Derivative(s, in, in.q, dy), kError + delta, "d_q");
        expect(get_k(d_k), Derivative(s, in, in.k, dy), kError + s.time * delta, "d_k");
        expect(get_k(d_v), Derivative(s, in, in.v, dy), kError, "d_v");
      }
    }
  }
}

// Causal attention of 70 queries after 71 keys, as four parts: keys 0 to 4, 5 to 70, none, and the
// queries' own, in two orders. Forward merges to the whole; backward, from the merged output and
// log_sum_exp, gives the whole's d_k and d_v, and d_q as a sum.
TEST_P(AttentionMergeTest, PartsMergeToTheWhole) {
  constexpr int64_t kTime = 70, kPast = 71, kKeys = kTime + kPast, kWidth = 12, kKvWidth = 6;
  const AttentionShape whole{.batch = 2,
                             .time = kTime,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_size = 3,
                             .scale = 0.6f,
                             .past = kPast};
  struct Part {
    int64_t first, keys;
    bool causal;
  };
  const std::vector<Part> kOrders[] = {
      {{0, 5, false}, {5, 66, false}, {3, 0, false}, {71, 0, true}},
      {{3, 0, false}, {71, 0, true}, {5, 66, false}, {0, 5, false}}};
  for (const DType dtype : kFloatTypes) {
    const Tensor q = Put(RandomOf(dtype, 2 * kTime * kWidth), {2 * kTime, kWidth}, dtype);
    const Tensor dy = Put(RandomOf(dtype, 2 * kTime * kWidth), {2 * kTime, kWidth}, dtype);
    const Shape kv_shape{2 * kKeys, kKvWidth};
    const Tensor k = Put(RandomOf(dtype, 2 * kKeys * kKvWidth), kv_shape, dtype);
    const Tensor v = Put(RandomOf(dtype, 2 * kKeys * kKvWidth), kv_shape, dtype);
    const Tensor output = New({2 * kTime, kWidth}), lse = New({2, 4, kTime});
    const Tensor d_q = New({2 * kTime, kWidth}), d_k = New(kv_shape), d_v = New(kv_shape);
    const Tensor work = Workspace(whole, dtype);
    ASSERT_TRUE(AttentionForward(whole, q, k, v, output, lse, work, *stream_).ok());
    ASSERT_TRUE(
        AttentionBackward(whole, q, k, v, output, lse, dy, d_q, d_k, d_v, work, *stream_).ok());
    const std::vector<float> wanted = Get(output), wanted_lse = Get(lse);
    const std::vector<float> wanted_q = Get(d_q), wanted_k = Get(d_k), wanted_v = Get(d_v);
    for (const std::vector<Part>& parts : kOrders) {
      for (const DType sums : {dtype, DType::kFloat32}) {
        const Tensor merged = New({2 * kTime, kWidth});
        const Tensor merged_lse = Put(std::vector<float>(2 * 4 * kTime, -kInfinity), {2, 4, kTime});
        const Tensor sum_q = Put(std::vector<float>(2 * kTime * kWidth), {2 * kTime, kWidth});
        const Tensor all_k = Put(std::vector<float>(2 * kKeys * kKvWidth), kv_shape);
        const Tensor all_v = Put(std::vector<float>(2 * kKeys * kKvWidth), kv_shape);
        const auto part_shape = [&](const Part& part) {
          AttentionShape s = whole;
          s.batch = 1;  // sequence by sequence, so that a part's keys may begin anywhere
          s.past = 0;
          s.causal = part.causal;
          s.keys = part.keys;
          return s;
        };
        const auto rows = [&](const Part& part, int64_t b, const Tensor& matrix) {
          return matrix.Rows(b * kKeys + part.first, part.causal ? kTime : part.keys);
        };
        for (const Part& part : parts) {
          const Tensor partial = New({2 * kTime, kWidth}, sums), partial_lse = New({2, 4, kTime});
          for (int64_t b = 0; b < 2; ++b) {
            ASSERT_TRUE(
                AttentionForward(part_shape(part), q.Rows(b * kTime, kTime), rows(part, b, k),
                                 rows(part, b, v), partial.Rows(b * kTime, kTime),
                                 partial_lse.Slice(b * 4 * kTime, 4 * kTime).Reshape({1, 4, kTime}),
                                 work, *stream_)
                    .ok());
          }
          ASSERT_TRUE(MergeAttention(partial, partial_lse, 0, merged, merged_lse, *stream_).ok());
        }
        for (const Part& part : parts) {
          for (int64_t b = 0; b < 2; ++b) {
            const Tensor part_q = New({kTime, kWidth}, sums);
            ASSERT_TRUE(
                AttentionBackward(part_shape(part), q.Rows(b * kTime, kTime), rows(part, b, k),
                                  rows(part, b, v), merged.Rows(b * kTime, kTime),
                                  merged_lse.Slice(b * 4 * kTime, 4 * kTime).Reshape({1, 4, kTime}),
                                  dy.Rows(b * kTime, kTime), part_q, rows(part, b, all_k),
                                  rows(part, b, all_v), work, *stream_)
                    .ok());
            ASSERT_TRUE(AddInto(part_q, sum_q.Rows(b * kTime, kTime), *stream_).ok());
          }
        }
        // kError as above; a part that is stored in 16 bits adds a rounding of at most |v| < 5, of
        // d_q of its own size, at most 4 here.
        const double roundoff = sums == DType::kFloat32 ? 0 : UnitRoundoff(sums);
        const auto expect = [&](const Tensor& tensor, const std::vector<float>& expected,
                                double error, const char* what) {
          const std::vector<float> result = Get(tensor);
          for (size_t i = 0; i < result.size(); ++i) {
            ASSERT_NEAR(result[i], expected[i], error * (1 + std::abs(expected[i])))
                << what << " " << i << " " << DTypeName(dtype);
          }
        };
        expect(merged, wanted, kError + 5 * roundoff, "output");
        expect(merged_lse, wanted_lse, kError, "log_sum_exp");
        // dy . output differs by as much as output, H times.
        const double delta = kError + 3 * 4 * 5 * roundoff;
        expect(sum_q, wanted_q, delta + 4 * 4 * roundoff, "d_q");
        expect(all_k, wanted_k, 2 * delta + 2 * 70 * roundoff, "d_k");
        expect(all_v, wanted_v, kError, "d_v");
      }
    }
  }
}

TEST_P(AttentionMergeTest, NoKeys) {
  for (const DType dtype : kFloatTypes) {
    const AttentionShape s{.batch = 2,
                           .time = 65,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_size = 3,
                           .key_rows = 4,
                           .causal = false};
    const Tensor q = Put(RandomOf(dtype, 130 * 6), {130, 6}, dtype);
    const Tensor k = New({8, 3}, dtype), d_k = Put(std::vector<float>(24, 7), {8, 3}, dtype);
    const Tensor output = New({130, 6}, dtype), d_q = New({130, 6}, dtype);
    const Tensor lse = New({2, 2, 65}), work = Workspace(s, dtype);
    ASSERT_TRUE(AttentionForward(s, q, k, k, output, lse, work, *stream_).ok());
    EXPECT_EQ(Get(output), std::vector<float>(130 * 6));
    EXPECT_EQ(Get(lse), std::vector<float>(2 * 2 * 65, -kInfinity));
    ASSERT_TRUE(AttentionBackward(s, q, k, k, output, lse, q, d_q, d_k, d_k, work, *stream_).ok());
    EXPECT_EQ(Get(d_q), std::vector<float>(130 * 6));
    EXPECT_EQ(Get(d_k), std::vector<float>(24, 7));
  }
}

// -infinity on either side, and on both: nothing is read that has no weight, not even a NaN.
TEST_P(AttentionMergeTest, Nothing) {
  for (const DType dtype : kFloatTypes) {
    const Tensor output = Put({1, NAN, 3, 0}, {4, 1}), partial = Put({NAN, 2, 3, 0}, {4, 1}, dtype);
    const Tensor lse = Put({0.5f, -kInfinity, 80, -kInfinity}, {1, 1, 4});
    const Tensor partial_lse = Put({-kInfinity, 0.25f, 80, -kInfinity}, {1, 1, 4});
    ASSERT_TRUE(MergeAttention(partial, partial_lse, 0, output, lse, *stream_).ok());
    EXPECT_EQ(Get(output), (std::vector<float>{1, 2, 3, 0}));
    const float twice = 80 + std::log(2.0f);
    EXPECT_EQ(Get(lse), (std::vector<float>{0.5f, 0.25f, twice, -kInfinity}));
  }
}

TEST_P(AttentionMergeTest, RefusesWhatDoesNotFit) {
  const Tensor rows = New({4, 6}), lse = New({2, 3, 2});
  EXPECT_TRUE(MergeAttention(rows, lse, 2, rows, lse, *stream_).ok());
  for (const absl::Status& status :
       {MergeAttention(rows, lse, 1, rows, lse, *stream_),
        MergeAttention(rows, lse, 3, rows, lse, *stream_),
        MergeAttention(rows, New({12}), 0, rows, lse, *stream_),
        MergeAttention(rows, New({1, 4, 4}), 0, rows, New({1, 4, 4}), *stream_),
        MergeAttention(rows, lse, 0, New({4, 6}, DType::kBFloat16), lse, *stream_)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

TESSERA_INSTANTIATE_KERNEL_TEST(AttentionMergeTest);

}  // namespace
}  // namespace tessera
