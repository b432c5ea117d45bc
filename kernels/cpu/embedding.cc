#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"
// Keep after foreach_target.h.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {

// row may be token.
template <typename S>
void SumRow(const S* token, const S* position, int64_t channels, S* row) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t left = channels - c;
    StoreUpTo(d, hn::Add(LoadUpTo(d, token + c, left), LoadUpTo(d, position + c, left)), row + c,
              left);
  }
}

// gradient[begin, end) += those columns of the given rows, in that order; rounded once.
template <typename S, typename G>
void AddRows(const S* rows, int64_t channels, const int32_t* row, int64_t num_rows, int64_t begin,
             int64_t end, G* gradient) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t c = begin; c < end; c += lanes) {
    FloatVec sum = LoadUpTo(d, gradient + c, end - c);
    for (int64_t i = 0; i < num_rows; ++i) {
      sum = hn::Add(sum, LoadUpTo(d, rows + row[i] * channels + c, end - c));
    }
    StoreUpTo(d, sum, gradient + c, end - c);
  }
}

void SumTableRows(DType dtype, const void* token, const void* position, int64_t channels,
                  void* row) {
  WithElement(dtype, [&](auto s) HWY_ATTR {
    using S = decltype(s);
    SumRow(static_cast<const S*>(token), static_cast<const S*>(position), channels,
           static_cast<S*>(row));
  });
}

void AddGradientRows(DType dtype, DType accumulated, const void* rows, int64_t channels,
                     const int32_t* row, int64_t num_rows, int64_t begin, int64_t end,
                     void* gradient) {
  WithElements(dtype, accumulated, [&](auto s, auto g) HWY_ATTR {
    AddRows(static_cast<const decltype(s)*>(rows), channels, row, num_rows, begin, end,
            static_cast<decltype(g)*>(gradient));
  });
}

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
HWY_EXPORT(SumTableRows);
HWY_EXPORT(AddGradientRows);

namespace cpu {
namespace {

constexpr int64_t kRowBlock = 128;
// Gradients: threads share out columns, so that each sum runs over rows in ascending order.
constexpr int64_t kColumnBlock = 64;

absl::Status CheckRange(absl::string_view what, const int32_t* values, int64_t count,
                        int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 0 || values[i] >= limit) {
      return absl::InvalidArgumentError(absl::StrCat("embedding: ", what, " ", values[i], " at ", i,
                                                     " is outside [0, ", limit, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const Tensor& ids, const Tensor& table, const EmbeddingOptions& options) {
  return CheckRange("id", Data<const int32_t>(ids), ids.num_elements(),
                    options.num_ids == 0 ? table.shape().dim(0) : options.num_ids);
}

// The position of each row.
class Positions {
 public:
  Positions(const Tensor& positions, int64_t time)
      : positions_(positions.is_null() ? nullptr : Data<const int32_t>(positions)),
        period_(positions.is_null() ? time : positions.num_elements()) {}

  // All of them are rows of the table.
  absl::Status Check(const Tensor& table) const {
    if (positions_ == nullptr) return absl::OkStatus();
    return CheckRange("position", positions_, period_, table.shape().dim(0));
  }
  int64_t operator[](int64_t row) const {
    return positions_ == nullptr ? row % period_ : positions_[row % period_];
  }

 private:
  const int32_t* const positions_;
  const int64_t period_;
};

// table[key(group)] += the group's rows of d_output; groups are runs of equal key(row) in rows.
template <typename Key>
void AddGroups(const Tensor& d_output, const std::vector<int32_t>& rows, const Key& key,
               const Tensor& table, int num_threads) {
  const int64_t channels = table.shape().last_dim();
  const int64_t count = static_cast<int64_t>(rows.size());
  ParallelForBlocks(num_threads, channels, kColumnBlock, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0, last = 0; first < count; first = last) {
      while (last < count && key(rows[last]) == key(rows[first])) ++last;
      HWY_DYNAMIC_DISPATCH(AddGradientRows)
      (d_output.dtype(), table.dtype(), At(d_output, 0), channels, rows.data() + first,
       last - first, begin, end, Row(table, key(rows[first])));
    }
  });
}

}  // namespace

absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output,
                              const EmbeddingOptions& options, int num_threads) {
  absl::Status status = CheckIds(ids, token_table, options);
  if (!status.ok()) return status;
  const Positions positions(options.positions, ids.shape().dim(1));
  if (!position_table.is_null()) status = positions.Check(position_table);
  if (!status.ok()) return status;
  const int32_t* id = Data<const int32_t>(ids);
  const int64_t vocab = token_table.shape().dim(0), channels = token_table.shape().dim(1);
  const int64_t row_bytes = channels * DTypeSizeBytes(output.dtype());
  ParallelForBlocks(num_threads, ids.num_elements(), kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = id[i] - options.first_id;
      const bool held = token >= 0 && token < vocab;
      if (!position_table.is_null() && held) {
        HWY_DYNAMIC_DISPATCH(SumTableRows)
        (output.dtype(), Row(token_table, token), Row(position_table, positions[i]), channels,
         Row(output, i));
      } else if (!position_table.is_null()) {
        std::memcpy(Row(output, i), Row(position_table, positions[i]), row_bytes);
      } else if (held) {
        std::memcpy(Row(output, i), Row(token_table, token), row_bytes);
      } else {
        std::memset(Row(output, i), 0, row_bytes);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const EmbeddingOptions& options,
                               int num_threads) {
  absl::Status status = CheckIds(ids, d_token_table, options);
  if (!status.ok()) return status;
  const int32_t* id = Data<const int32_t>(ids);
  const int64_t vocab = d_token_table.shape().dim(0);
  std::vector<int32_t> order;
  order.reserve(ids.num_elements());
  for (int64_t i = 0; i < ids.num_elements(); ++i) {
    const int64_t token = id[i] - options.first_id;
    if (token >= 0 && token < vocab) order.push_back(static_cast<int32_t>(i));
  }
  // Stable: rows of one id, and below of one position, stay in ascending order.
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return id[a] < id[b]; });
  AddGroups(
      d_output, order, [&](int64_t row) { return id[row] - options.first_id; }, d_token_table,
      num_threads);
  return absl::OkStatus();
}

absl::Status AddPositions(const Tensor& position_table, const Tensor& positions, int64_t time,
                          const Tensor& output, int num_threads) {
  const Positions position(positions, time);
  absl::Status status = position.Check(position_table);
  if (!status.ok()) return status;
  ParallelForBlocks(num_threads, output.shape().dim(0), kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(SumTableRows)
      (output.dtype(), Row(output, i), Row(position_table, position[i]), output.shape().dim(1),
       Row(output, i));
    }
  });
  return absl::OkStatus();
}

absl::Status AddPositionsBackward(const Tensor& d_output, const Tensor& positions, int64_t time,
                                  const Tensor& d_position_table, int num_threads) {
  const Positions position(positions, time);
  absl::Status status = position.Check(d_position_table);
  if (!status.ok()) return status;
  const int64_t rows = d_output.shape().dim(0);
  std::vector<int32_t> order(rows);
  std::iota(order.begin(), order.end(), 0);
  if (positions.is_null()) {
    const int64_t batch = rows / time;
    for (int64_t i = 0; i < rows; ++i) {
      order[i] = static_cast<int32_t>(i % batch * time + i / batch);
    }
  } else {
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return position[a] < position[b]; });
  }
  AddGroups(
      d_output, order, [&](int64_t row) { return position[row]; }, d_position_table, num_threads);
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace tessera
#endif  // HWY_ONCE
