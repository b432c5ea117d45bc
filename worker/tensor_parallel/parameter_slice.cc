#include "worker/tensor_parallel/parameter_slice.h"

#include <utility>

#include "kernels/status_macros.h"

namespace tessera {
namespace {

int64_t Sum(const std::vector<IndexRange>& ranges) {
  int64_t sum = 0;
  for (const IndexRange& range : ranges) sum += range.count;
  return sum;
}

int64_t RowsOf(const Shape& shape) { return shape.num_dims() == 1 ? 1 : shape.dim(0); }

}  // namespace

int64_t ParameterSlice::num_rows() const { return Sum(rows) + padding_rows; }

int64_t ParameterSlice::num_columns() const { return Sum(columns); }

ParameterSlice WholeSlice(const Shape& shape) {
  return ColumnSlice(shape, {{0, shape.last_dim()}});
}

ParameterSlice RowSlice(const Shape& shape, std::vector<IndexRange> rows, int64_t padding_rows) {
  return {std::move(rows), {{0, shape.last_dim()}}, shape.last_dim(), padding_rows};
}

ParameterSlice ColumnSlice(const Shape& shape, std::vector<IndexRange> columns) {
  return {{{0, RowsOf(shape)}}, std::move(columns), shape.last_dim(), 0};
}

Shape LocalShape(const ParameterSlice& slice, const Shape& whole) {
  if (whole.num_dims() == 1) return {slice.num_columns()};
  return {slice.num_rows(), slice.num_columns()};
}

absl::Status ForEachRun(const ParameterSlice& slice,
                        const std::function<absl::Status(const SliceRun&)>& body) {
  const int64_t columns = slice.num_columns();
  int64_t local_row = 0;
  for (const IndexRange& rows : slice.rows) {
    if (columns == slice.whole_columns) {
      TESSERA_RETURN_IF_ERROR(
          body({local_row * columns, rows.begin * slice.whole_columns, rows.count * columns}));
      local_row += rows.count;
      continue;
    }
    for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row, ++local_row) {
      int64_t local = local_row * columns;
      for (const IndexRange& range : slice.columns) {
        TESSERA_RETURN_IF_ERROR(
            body({local, row * slice.whole_columns + range.begin, range.count}));
        local += range.count;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera
