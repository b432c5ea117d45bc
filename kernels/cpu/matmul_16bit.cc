// Where oneDNN multiplies bf16 natively, tiles are its primitives. Elsewhere operands are promoted,
// panel by panel, and multiplied by sgemm: a thread takes neighbouring tiles of one column, so that
// b's panel is promoted once for all of them.
#include "kernels/cpu/matmul_16bit.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/primitive_gemm.h"
#include "kernels/cpu/sgemm.h"
#include "kernels/cpu/tile_plan.h"

namespace tessera::cpu {
namespace {

// Largest part of k whose panels are promoted at once, and most tiles that share b's panel.
constexpr int64_t kPanelDepth = 1024;
constexpr int64_t kSharingTiles = 2;

// Floats that a thread keeps between calls.
class Workspace {
 public:
  float* Get(int64_t elements) {
    if (elements > elements_) {
      data_.reset(static_cast<float*>(
          ::operator new (elements * sizeof(float), std::align_val_t{kAlignment})));
      elements_ = elements;
    }
    return data_.get();
  }

 private:
  static constexpr size_t kAlignment = 128;
  struct Free {
    void operator()(float* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t elements_ = 0;
};

struct Operand {
  const Tensor& tensor;
  bool transposed;

  // Element (row, column) of the operand as it is multiplied.
  void* Address(int64_t row, int64_t column) const {
    return At(tensor,
              transposed ? column * tensor.row_stride() + row : row * tensor.row_stride() + column);
  }
  // rows x columns of it from (row, column), as fp32 in `to`, stored the same way round.
  MatrixView Promote(int64_t row, int64_t column, int64_t rows, int64_t columns, float* to) const {
    if (transposed) std::swap(rows, columns);
    PromotePanel(tensor.dtype(), Address(row, column), tensor.row_stride(), rows, columns, to,
                 columns);
    return {to, columns, transposed};
  }
  OperandView Native(int64_t row, int64_t column) const {
    return {Address(row, column), tensor.row_stride(), transposed};
  }
};

// Neighbouring tiles of one column, that one thread computes.
class Segment {
 public:
  Segment(const Tensor& a, const Tensor& b, const Tensor& output, const MatmulOptions& options,
          const TilePlan& plan, int64_t first, int64_t count)
      : a_{a, options.transpose_a},
        b_{b, options.transpose_b},
        output_(output),
        options_(options),
        plan_(plan),
        first_(first),
        count_(count),
        depth_(a.shape().dim(options.transpose_a ? 0 : 1)),
        parts_(std::max<int64_t>(1, (depth_ + kPanelDepth - 1) / kPanelDepth)),
        part_depth_(PartSize(depth_, parts_, 16)),
        in_place_(output.dtype() == DType::kFloat32) {}

  bool Compute() {
    const int64_t columns = plan_.tile_columns, rows = plan_.tile_rows;
    thread_local Workspace workspace;
    bias_panel_ = workspace.Get(columns + part_depth_ * (columns + rows) +
                                (in_place_ ? 0 : count_ * rows * columns));
    b_panel_ = bias_panel_ + columns;
    a_panel_ = b_panel_ + part_depth_ * columns;
    sums_ = a_panel_ + part_depth_ * rows;
    const bool native = a_.tensor.dtype() == DType::kBFloat16 && HasNativeBf16();
    const bool ok = native ? MultiplyNative() : MultiplyPromoted();
    for (int64_t i = 0; i < count_; ++i) Finish(i);
    return ok;
  }

 private:
  // Where tile i's sums are taken.
  float* Sums(int64_t i, const Tile& tile) const {
    return in_place_ ? static_cast<float*>(OutputAddress(tile))
                     : sums_ + i * plan_.tile_rows * plan_.tile_columns;
  }
  int64_t SumStride() const { return in_place_ ? output_.row_stride() : plan_.tile_columns; }
  void* OutputAddress(const Tile& tile) const {
    return At(output_, tile.row * output_.row_stride() + tile.column);
  }
  float FirstBeta() const { return in_place_ && AddsOutput() ? 1 : 0; }
  bool AddsOutput() const {
    return options_.accumulate ||
           (!options_.addend.is_null() && options_.addend.address() == output_.address());
  }

  bool MultiplyNative() {
    bool ok = true;
    for (int64_t i = 0; i < count_; ++i) {
      const Tile tile = TileAt(plan_, first_ + i);
      ok &= PrimitiveGemm(DType::kBFloat16, tile.rows, tile.columns, depth_, options_.alpha,
                          a_.Native(tile.row, 0), b_.Native(0, tile.column), FirstBeta(),
                          Sums(i, tile), SumStride());
    }
    return ok;
  }

  bool MultiplyPromoted() {
    bool ok = true;
    for (int64_t part = 0; part < parts_; ++part) {
      const int64_t begin = part * part_depth_;
      const int64_t depth = std::max<int64_t>(0, std::min(part_depth_, depth_ - begin));
      const Tile any = TileAt(plan_, first_);
      const MatrixView b = b_.Promote(begin, any.column, depth, any.columns, b_panel_);
      for (int64_t i = 0; i < count_; ++i) {
        const Tile tile = TileAt(plan_, first_ + i);
        const MatrixView a = a_.Promote(tile.row, begin, tile.rows, depth, a_panel_);
        ok &= Sgemm(tile.rows, tile.columns, depth, options_.alpha, a, b,
                    part == 0 ? FirstBeta() : 1, Sums(i, tile), SumStride());
      }
    }
    return ok;
  }

  // Bias and addend, and the rounding.
  void Finish(int64_t i) {
    const Tile tile = TileAt(plan_, first_ + i);
    PanelAddends addends;
    if (!options_.bias.is_null()) {
      PromotePanel(options_.bias.dtype(), At(options_.bias, tile.column), 0, 1, tile.columns,
                   bias_panel_, 0);
      addends.bias = bias_panel_;
    }
    const Tensor& addend = options_.accumulate ? output_ : options_.addend;
    // In place the sums began with the output.
    if (!addend.is_null() && !(in_place_ && AddsOutput())) {
      addends.addend = At(addend, tile.row * addend.row_stride() + tile.column);
      addends.addend_stride = addend.row_stride();
    }
    if (in_place_ && addends.bias == nullptr && addends.addend == nullptr) return;
    DemotePanel(output_.dtype(), Sums(i, tile), SumStride(), tile.rows, tile.columns, addends,
                OutputAddress(tile), output_.row_stride());
  }

  const Operand a_, b_;
  const Tensor& output_;
  const MatmulOptions& options_;
  const TilePlan& plan_;
  const int64_t first_, count_;
  const int64_t depth_, parts_, part_depth_;
  const bool in_place_;  // sums are taken in the output itself
  float *bias_panel_ = nullptr, *b_panel_ = nullptr, *a_panel_ = nullptr, *sums_ = nullptr;
};

}  // namespace

absl::Status Matmul16Bit(const Tensor& a, const Tensor& b, const Tensor& output,
                         const MatmulOptions& options, int num_threads) {
  const TilePlan plan = PlanTiles(output.shape().dim(0), output.shape().dim(1));
  // How many tiles share a panel changes no sum, so it may depend on the threads.
  const int64_t share = std::clamp<int64_t>(plan.num_tiles() / std::max(1, 2 * num_threads), 1,
                                            std::min(kSharingTiles, plan.row_tiles));
  const int64_t segments_per_column = (plan.row_tiles + share - 1) / share;
  std::atomic<bool> failed{false};
  ParallelForDynamic(num_threads, plan.column_tiles * segments_per_column, [&](int64_t index) {
    const int64_t begin = index % segments_per_column * share;
    Segment segment(a, b, output, options, plan,
                    index / segments_per_column * plan.row_tiles + begin,
                    std::min(share, plan.row_tiles - begin));
    if (!segment.Compute()) failed = true;
  });
  if (failed) {
    return absl::InternalError(absl::StrCat("matmul: oneDNN refused ", a.ToString(), " times ",
                                            b.ToString(), " into ", output.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace tessera::cpu
