// Attention by blocks of query rows: one block's scores are in a thread's workspace, all of
// its keys at once (so the softmax needs no rescaling), products by sgemm. 16-bit operands are
// promoted to the workspace first, a head's keys and values once for all of its blocks.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <cmath>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/panel.h"
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

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

namespace tessera {
HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(SoftmaxGradientRow);
HWY_EXPORT(Dot);

namespace cpu {
namespace {

// Query rows of one block.
constexpr int64_t kBlockRows = 64;

int64_t ScoreElements(const AttentionShape& shape) {
  return std::min(kBlockRows, shape.time) * shape.num_keys();
}

// Keys that query t sees.
int64_t SeenKeys(const AttentionShape& shape, int64_t t) {
  return shape.causal ? shape.past + t + 1 : shape.keys;
}

// Floats of one thread's workspace: scores and their gradients; for 16-bit types keys, values and
// their gradients, and blocks of q, output and their gradients.
int64_t WorkspaceElements(const AttentionShape& shape, DType dtype) {
  const int64_t promoted =
      dtype == DType::kFloat32 ? 0 : 4 * (shape.num_keys() + std::min(kBlockRows, shape.time));
  return 2 * ScoreElements(shape) + promoted * shape.head_size;
}

// Hands out parts of a thread's workspace, in order.
class ThreadWorkspace {
 public:
  ThreadWorkspace(const AttentionShape& shape, DType dtype, const Tensor& workspace)
      : next_(Data<float>(workspace) + WorkspaceElements(shape, dtype) * omp_get_thread_num()),
        promotes_(dtype != DType::kFloat32) {}

  float* Take(int64_t elements) { return std::exchange(next_, next_ + elements); }
  // Room for promoted elements; null where there is nothing to promote.
  float* TakePromoted(int64_t elements) { return promotes_ ? Take(elements) : nullptr; }

 private:
  float* next_;
  const bool promotes_;
};

// `rows` rows of one head of a matrix, as fp32: the tensor's own memory, or `buffer` for 16-bit
// elements, from and to which Load and Store convert. An fp32 tensor needs no buffer.
struct HeadBlock {
  HeadBlock(const Tensor& tensor, int64_t first_row, int64_t head, int64_t num_rows,
            int64_t head_size, float* buffer)
      : dtype(tensor.dtype()),
        address(At(tensor, first_row * tensor.row_stride() + head * head_size)),
        address_stride(tensor.row_stride()),
        rows(num_rows),
        size(head_size),
        data(dtype == DType::kFloat32 ? static_cast<float*>(address) : buffer),
        stride(dtype == DType::kFloat32 ? address_stride : head_size) {}

  const HeadBlock& Load() const {
    if (dtype != DType::kFloat32) {
      PromotePanel(dtype, address, address_stride, rows, size, data, stride);
    }
    return *this;
  }
  void Store() const {
    if (dtype != DType::kFloat32) {
      DemotePanel(dtype, data, stride, rows, size, {}, address, address_stride);
    }
  }
  void StoreZeros() const {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(data + i * stride, size, 0.0f);
    Store();
  }
  MatrixView View(bool transposed = false) const { return {data, stride, transposed}; }

  DType dtype;
  void* address;
  int64_t address_stride, rows, size;
  float* data;
  int64_t stride;
};

absl::Status Result(const std::atomic<bool>& failed) {
  return failed ? absl::InternalError("attention: oneDNN refused a product") : absl::OkStatus();
}

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device, DType dtype) {
  return WorkspaceElements(shape, dtype) * static_cast<int64_t>(sizeof(float)) *
         static_cast<const CpuDevice&>(device).num_threads();
}

absl::Status AttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                              const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                              const Tensor& workspace, int num_threads) {
  const int64_t time = shape.time, size = shape.head_size, num_keys = shape.num_keys();
  const int64_t key_rows = shape.num_key_rows(), query_rows = shape.num_query_rows();
  const int64_t group = shape.heads / shape.kv_heads, block_rows = std::min(kBlockRows, time);
  const auto softmax = HWY_DYNAMIC_DISPATCH(SoftmaxRow);
  std::atomic<bool> failed{false};
  ParallelFor(num_threads, shape.batch * shape.heads, [&](int64_t index) {
    const int64_t batch = index / shape.heads, head = index % shape.heads;
    ThreadWorkspace memory(shape, q.dtype(), workspace);
    float* scores = memory.Take(ScoreElements(shape));
    const HeadBlock keys(k, batch * key_rows, head / group, num_keys, size,
                         memory.TakePromoted(num_keys * size));
    const HeadBlock values(v, batch * key_rows, head / group, num_keys, size,
                           memory.TakePromoted(num_keys * size));
    float* query_buffer = memory.TakePromoted(block_rows * size);
    float* output_buffer = memory.TakePromoted(block_rows * size);
    keys.Load();
    values.Load();
    float* lse = Data<float>(log_sum_exp) + index * log_sum_exp.row_stride();
    bool ok = true;
    for (int64_t begin = 0; begin < time; begin += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, time - begin), row = batch * query_rows + begin;
      const int64_t count = SeenKeys(shape, begin + rows - 1);
      const HeadBlock queries(q, row, head, rows, size, query_buffer);
      const HeadBlock result(output, row, head, rows, size, output_buffer);
      if (count == 0) {
        std::fill_n(lse + begin, rows, -std::numeric_limits<float>::infinity());
        result.StoreZeros();
        continue;
      }
      ok &= Sgemm(rows, count, size, shape.scale, queries.Load().View(), keys.View(true), 0, scores,
                  count);
      for (int64_t i = 0; i < rows; ++i) {
        lse[begin + i] = softmax(scores + i * count, SeenKeys(shape, begin + i), count);
      }
      ok &= Sgemm(rows, size, count, 1, {scores, count}, values.View(), 0, result.data,
                  result.stride);
      result.Store();
    }
    if (!ok) failed = true;
  });
  return Result(failed);
}

absl::Status AttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                               const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                               const Tensor& d_v, const Tensor& workspace, int num_threads) {
  const int64_t time = shape.time, size = shape.head_size, num_keys = shape.num_keys();
  const int64_t key_rows = shape.num_key_rows(), query_rows = shape.num_query_rows();
  const int64_t group = shape.heads / shape.kv_heads, block_rows = std::min(kBlockRows, time);
  const auto softmax_gradient = HWY_DYNAMIC_DISPATCH(SoftmaxGradientRow);
  const auto dot = HWY_DYNAMIC_DISPATCH(Dot);
  const int64_t last_block = (time - 1) / kBlockRows * kBlockRows;
  std::atomic<bool> failed{false};
  // One thread owns a kv head, so that its gradient is summed over query heads and rows in order.
  ParallelFor(num_threads, shape.batch * shape.kv_heads, [&](int64_t index) {
    const int64_t batch = index / shape.kv_heads, kv_head = index % shape.kv_heads;
    ThreadWorkspace memory(shape, q.dtype(), workspace);
    float* scores = memory.Take(ScoreElements(shape));
    float* d_scores = memory.Take(ScoreElements(shape));
    const auto whole_head = [&](const Tensor& tensor) {
      return HeadBlock(tensor, batch * key_rows, kv_head, num_keys, size,
                       memory.TakePromoted(num_keys * size));
    };
    const HeadBlock keys = whole_head(k), values = whole_head(v);
    const HeadBlock d_keys = whole_head(d_k), d_values = whole_head(d_v);
    float* buffers[4];
    for (float*& buffer : buffers) buffer = memory.TakePromoted(block_rows * size);
    keys.Load();
    values.Load();
    bool ok = true;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const float* lse =
          Data<const float>(log_sum_exp) + (batch * shape.heads + head) * log_sum_exp.row_stride();
      // From the last block down: it reaches every key, so it assigns what the others add to.
      for (int64_t begin = last_block; begin >= 0; begin -= kBlockRows) {
        const int64_t rows = std::min(kBlockRows, time - begin);
        const int64_t count = SeenKeys(shape, begin + rows - 1);
        const float beta = head == kv_head * group && begin == last_block ? 0 : 1;
        const auto block = [&](const Tensor& tensor, float* buffer) {
          return HeadBlock(tensor, batch * query_rows + begin, head, rows, size, buffer);
        };
        const HeadBlock queries = block(q, buffers[0]), gradient = block(d_output, buffers[1]);
        const HeadBlock outputs = block(output, buffers[2]), d_queries = block(d_q, buffers[3]);
        if (count == 0) {
          d_queries.StoreZeros();
          continue;
        }
        queries.Load();
        gradient.Load();
        outputs.Load();
        ok &= Sgemm(rows, count, size, shape.scale, queries.View(), keys.View(true), 0, scores,
                    count);
        ok &= Sgemm(rows, count, size, 1, gradient.View(), values.View(true), 0, d_scores, count);
        for (int64_t i = 0; i < rows; ++i) {
          const float delta =
              dot(gradient.data + i * gradient.stride, outputs.data + i * outputs.stride, size);
          softmax_gradient(lse[begin + i], delta, SeenKeys(shape, begin + i), count,
                           scores + i * count, d_scores + i * count);
        }
        ok &= Sgemm(count, size, rows, 1, {scores, count, true}, gradient.View(), beta,
                    d_values.data, d_values.stride);
        ok &= Sgemm(count, size, rows, shape.scale, {d_scores, count, true}, queries.View(), beta,
                    d_keys.data, d_keys.stride);
        ok &= Sgemm(rows, size, count, shape.scale, {d_scores, count}, keys.View(), 0,
                    d_queries.data, d_queries.stride);
        d_queries.Store();
      }
    }
    d_keys.Store();
    d_values.Store();
    if (!ok) failed = true;
  });
  return Result(failed);
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
