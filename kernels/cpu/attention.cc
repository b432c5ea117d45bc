// Causal attention by blocks of query rows: one block's scores are in a thread's workspace, all of
// its keys at once (so the softmax needs no rescaling), products by sgemm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sgemm.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// scores[0, valid) = softmax of scores, scores[valid, count) = 0; returns the log-sum-exp.
float SoftmaxRow(float* scores, int64_t valid, int64_t count) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  float max = scores[0];
  int64_t j = 0;
  if (valid >= lanes) {
    FloatVec maxima = hn::LoadU(d, scores);
    for (j = lanes; j + lanes <= valid; j += lanes) {
      maxima = hn::Max(maxima, hn::LoadU(d, scores + j));
    }
    max = hn::GetLane(hn::MaxOfLanes(d, maxima));
  }
  for (; j < valid; ++j) max = HWY_MAX(max, scores[j]);
  const FloatVec maxima = hn::Set(d, max);
  FloatVec sums = hn::Zero(d);
  for (j = 0; j + lanes <= valid; j += lanes) {
    const FloatVec e = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + j), maxima));
    hn::StoreU(e, d, scores + j);
    sums = hn::Add(sums, e);
  }
  float sum = Sum(d, sums);
  if (j < valid) {
    StoreUpTo(d, hn::Exp(d, hn::Sub(LoadUpTo(d, scores + j, valid - j), maxima)), scores + j,
              valid - j);
    for (; j < valid; ++j) sum += scores[j];
  }
  const FloatVec factor = hn::Set(d, 1.0f / sum);
  for (j = 0; j < valid; j += lanes) {
    StoreUpTo(d, hn::Mul(LoadUpTo(d, scores + j, valid - j), factor), scores + j, valid - j);
  }
  std::memset(scores + valid, 0, (count - valid) * sizeof(float));
  return max + std::log(sum);
}

// scores[0, valid) become the probabilities p = exp(scores - log_sum_exp), d_p becomes
// d_scores = p * (d_p - delta); both 0 in [valid, count).
void SoftmaxGradientRow(float log_sum_exp, float delta, int64_t valid, int64_t count, float* scores,
                        float* d_p) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const FloatVec shift = hn::Set(d, log_sum_exp), deltas = hn::Set(d, delta);
  for (int64_t j = 0; j < valid; j += lanes) {
    const int64_t left = valid - j;
    const FloatVec p = hn::Exp(d, hn::Sub(LoadUpTo(d, scores + j, left), shift));
    StoreUpTo(d, p, scores + j, left);
    StoreUpTo(d, hn::Mul(p, hn::Sub(LoadUpTo(d, d_p + j, left), deltas)), d_p + j, left);
  }
  std::memset(scores + valid, 0, (count - valid) * sizeof(float));
  std::memset(d_p + valid, 0, (count - valid) * sizeof(float));
}

float Dot(const float* a, const float* b, int64_t count) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  FloatVec sum = hn::Zero(d);
  for (int64_t j = 0; j < count; j += lanes) {
    sum = hn::MulAdd(LoadUpTo(d, a + j, count - j), LoadUpTo(d, b + j, count - j), sum);
  }
  return Sum(d, sum);
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <omp.h>

#include <atomic>

namespace tessera {
HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(SoftmaxGradientRow);
HWY_EXPORT(Dot);

namespace cpu {
namespace {

// Query rows of one block.
constexpr int64_t kBlockRows = 64;

int64_t ScoreElements(const AttentionShape& shape) {
  return std::min(kBlockRows, shape.time) * shape.time;
}

float* ThreadWorkspace(const AttentionShape& shape, const Tensor& workspace) {
  return Data<float>(workspace) + 2 * ScoreElements(shape) * omp_get_thread_num();
}

// First element of head `head` of sequence `batch`, `row` tokens in.
float* Head(const Tensor& tensor, const AttentionShape& shape, int64_t batch, int64_t head,
            int64_t row = 0) {
  return Data<float>(tensor) + (batch * shape.time + row) * tensor.row_stride() +
         head * shape.head_size;
}

absl::Status Result(const std::atomic<bool>& failed) {
  return failed ? absl::InternalError("attention: oneDNN refused a product") : absl::OkStatus();
}

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device) {
  return 2 * ScoreElements(shape) * static_cast<int64_t>(sizeof(float)) *
         static_cast<const CpuDevice&>(device).num_threads();
}

absl::Status CausalAttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& output,
                                    const Tensor& log_sum_exp, const Tensor& workspace,
                                    int num_threads) {
  const int64_t time = shape.time, size = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  const auto softmax = HWY_DYNAMIC_DISPATCH(SoftmaxRow);
  std::atomic<bool> failed{false};
  ParallelFor(num_threads, shape.batch * shape.heads, [&](int64_t index) {
    const int64_t batch = index / shape.heads, head = index % shape.heads;
    const MatrixView keys{Head(k, shape, batch, head / group), k.row_stride(), true};
    const MatrixView values{Head(v, shape, batch, head / group), v.row_stride()};
    float* scores = ThreadWorkspace(shape, workspace);
    float* lse = Data<float>(log_sum_exp) + index * time;
    bool ok = true;
    for (int64_t begin = 0; begin < time; begin += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, time - begin), count = begin + rows;
      const MatrixView queries{Head(q, shape, batch, head, begin), q.row_stride()};
      ok &= Sgemm(rows, count, size, shape.scale, queries, keys, 0, scores, count);
      for (int64_t i = 0; i < rows; ++i) {
        lse[begin + i] = softmax(scores + i * count, begin + i + 1, count);
      }
      ok &= Sgemm(rows, size, count, 1, {scores, count}, values, 0,
                  Head(output, shape, batch, head, begin), output.row_stride());
    }
    if (!ok) failed = true;
  });
  return Result(failed);
}

absl::Status CausalAttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& output,
                                     const Tensor& log_sum_exp, const Tensor& d_output,
                                     const Tensor& d_q, const Tensor& d_k, const Tensor& d_v,
                                     const Tensor& workspace, int num_threads) {
  const int64_t time = shape.time, size = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  const auto softmax_gradient = HWY_DYNAMIC_DISPATCH(SoftmaxGradientRow);
  const auto dot = HWY_DYNAMIC_DISPATCH(Dot);
  const int64_t last_block = (time - 1) / kBlockRows * kBlockRows;
  std::atomic<bool> failed{false};
  // One thread owns a kv head, so that its gradient is summed over query heads and rows in order.
  ParallelFor(num_threads, shape.batch * shape.kv_heads, [&](int64_t index) {
    const int64_t batch = index / shape.kv_heads, kv_head = index % shape.kv_heads;
    const float* key = Head(k, shape, batch, kv_head);
    const MatrixView values{Head(v, shape, batch, kv_head), v.row_stride(), true};
    float* scores = ThreadWorkspace(shape, workspace);
    float* d_scores = scores + ScoreElements(shape);
    bool ok = true;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const float* lse = Data<const float>(log_sum_exp) + (batch * shape.heads + head) * time;
      // From the last block down: it reaches every key, so it assigns what the others add to.
      for (int64_t begin = last_block; begin >= 0; begin -= kBlockRows) {
        const int64_t rows = std::min(kBlockRows, time - begin), count = begin + rows;
        const float beta = head == kv_head * group && begin == last_block ? 0 : 1;
        const MatrixView queries{Head(q, shape, batch, head, begin), q.row_stride()};
        const MatrixView gradient{Head(d_output, shape, batch, head, begin), d_output.row_stride()};
        ok &= Sgemm(rows, count, size, shape.scale, queries, {key, k.row_stride(), true}, 0, scores,
                    count);
        ok &= Sgemm(rows, count, size, 1, gradient, values, 0, d_scores, count);
        for (int64_t i = 0; i < rows; ++i) {
          const float delta = dot(gradient.data + i * gradient.row_stride,
                                  Head(output, shape, batch, head, begin + i), size);
          softmax_gradient(lse[begin + i], delta, begin + i + 1, count, scores + i * count,
                           d_scores + i * count);
        }
        ok &= Sgemm(count, size, rows, 1, {scores, count, true}, gradient, beta,
                    Head(d_v, shape, batch, kv_head), d_v.row_stride());
        ok &= Sgemm(count, size, rows, shape.scale, {d_scores, count, true}, queries, beta,
                    Head(d_k, shape, batch, kv_head), d_k.row_stride());
        ok &= Sgemm(rows, size, count, shape.scale, {d_scores, count}, {key, k.row_stride()}, 0,
                    Head(d_q, shape, batch, head, begin), d_q.row_stride());
      }
    }
    if (!ok) failed = true;
  });
  return Result(failed);
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
