// fp32 products by oneDNN's sgemm, one call per tile of the output; row sums by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/matmul_16bit.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sgemm.h"
#include "kernels/cpu/tile_plan.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// output[begin, end) of each of the m rows = addend (if any) + bias (if any).
void FillTile(const float* bias, const float* addend, int64_t addend_stride, float* output,
              int64_t output_stride, int64_t m, int64_t n) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; j += lanes) {
      FloatVec v = bias == nullptr ? hn::Zero(d) : LoadUpTo(d, bias + j, n - j);
      if (addend != nullptr) {
        v = hn::Add(v, LoadUpTo(d, addend + i * addend_stride + j, n - j));
      }
      StoreUpTo(d, v, output + i * output_stride + j, n - j);
    }
  }
}

// output[begin, end) += sums over rows, 256 rows at a time so that error grows with m / 256.
template <typename S, typename G>
void RowSumElements(const S* input, int64_t stride, int64_t m, int64_t begin, int64_t end,
                    G* output) {
  constexpr int64_t kRows = 256;
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t j = begin;
  // Four vectors of columns at a time: whole cache lines, independent additions.
  for (; j + 4 * lanes <= end; j += 4 * lanes) {
    FloatVec total0 = LoadFull(d, output + j), total1 = LoadFull(d, output + j + lanes);
    FloatVec total2 = LoadFull(d, output + j + 2 * lanes);
    FloatVec total3 = LoadFull(d, output + j + 3 * lanes);
    for (int64_t row = 0; row < m; row += kRows) {
      FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      for (int64_t i = row; i < HWY_MIN(m, row + kRows); ++i) {
        const S* values = input + i * stride + j;
        sum0 = hn::Add(sum0, LoadFull(d, values));
        sum1 = hn::Add(sum1, LoadFull(d, values + lanes));
        sum2 = hn::Add(sum2, LoadFull(d, values + 2 * lanes));
        sum3 = hn::Add(sum3, LoadFull(d, values + 3 * lanes));
      }
      total0 = hn::Add(total0, sum0);
      total1 = hn::Add(total1, sum1);
      total2 = hn::Add(total2, sum2);
      total3 = hn::Add(total3, sum3);
    }
    StoreFull(d, total0, output + j);
    StoreFull(d, total1, output + j + lanes);
    StoreFull(d, total2, output + j + 2 * lanes);
    StoreFull(d, total3, output + j + 3 * lanes);
  }
  for (; j < end; j += lanes) {
    FloatVec total = LoadUpTo(d, output + j, end - j);
    for (int64_t row = 0; row < m; row += kRows) {
      FloatVec sum = hn::Zero(d);
      for (int64_t i = row; i < HWY_MIN(m, row + kRows); ++i) {
        sum = hn::Add(sum, LoadUpTo(d, input + i * stride + j, end - j));
      }
      total = hn::Add(total, sum);
    }
    StoreUpTo(d, total, output + j, end - j);
  }
}

void RowSumColumns(DType dtype, DType accumulated, const void* input, int64_t stride, int64_t m,
                   int64_t begin, int64_t end, void* output) {
  WithElements(dtype, accumulated, [&](auto s, auto g) HWY_ATTR {
    RowSumElements(static_cast<const decltype(s)*>(input), stride, m, begin, end,
                   static_cast<decltype(g)*>(output));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(FillTile);
HWY_EXPORT(RowSumColumns);

namespace cpu {
namespace {

constexpr int64_t kRowSumColumns = 128;

MatrixView Operand(const Tensor& tensor, bool transposed, int64_t row, int64_t column) {
  const float* data = Data<const float>(tensor);
  return {
      data + (transposed ? column * tensor.row_stride() + row : row * tensor.row_stride() + column),
      tensor.row_stride(), transposed};
}

}  // namespace

absl::Status Matmul(const Tensor& a, const Tensor& b, const Tensor& output,
                    const MatmulOptions& options, int num_threads) {
  if (a.dtype() != DType::kFloat32) return Matmul16Bit(a, b, output, options, num_threads);
  const int64_t k = a.shape().dim(options.transpose_a ? 0 : 1);
  const bool has_bias = !options.bias.is_null(), has_addend = !options.addend.is_null();
  // An addend that is the output itself needs no copy.
  const bool fill = has_bias || (has_addend && options.addend.address() != output.address());
  const float beta = options.accumulate || has_bias || has_addend ? 1 : 0;
  const TilePlan plan = PlanTiles(output.shape().dim(0), output.shape().dim(1));
  std::atomic<bool> failed{false};
  ParallelForDynamic(num_threads, plan.num_tiles(), [&](int64_t index) {
    const auto [row, column, rows, columns] = TileAt(plan, index);
    float* c = Data<float>(output) + row * output.row_stride() + column;
    if (fill) {
      HWY_DYNAMIC_DISPATCH(FillTile)
      (has_bias ? Data<const float>(options.bias) + column : nullptr,
       has_addend ? Data<const float>(options.addend) + row * options.addend.row_stride() + column
                  : nullptr,
       options.addend.row_stride(), c, output.row_stride(), rows, columns);
    }
    if (!Sgemm(rows, columns, k, options.alpha, Operand(a, options.transpose_a, row, 0),
               Operand(b, options.transpose_b, 0, column), beta, c, output.row_stride())) {
      failed = true;
    }
  });
  if (failed) {
    return absl::InternalError(absl::StrCat("matmul: oneDNN refused ", a.ToString(), " times ",
                                            b.ToString(), " into ", output.ToString()));
  }
  return absl::OkStatus();
}

absl::Status AddRowSum(const Tensor& input, const Tensor& output, int num_threads) {
  ParallelForBlocks(num_threads, output.num_elements(), kRowSumColumns,
                    [&](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(RowSumColumns)
                      (input.dtype(), output.dtype(), At(input, 0), input.row_stride(),
                       input.shape().num_rows(), begin, end, At(output, 0));
                    });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
