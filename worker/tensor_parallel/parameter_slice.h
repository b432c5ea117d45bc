// The part of a whole parameter that one rank holds: some of its rows, or some of its columns.
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_PARAMETER_SLICE_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_PARAMETER_SLICE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/tensor.h"

namespace tessera {

struct IndexRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// Of a parameter seen as a matrix; a vector is one row. Ranges are in local order; local elements
// are row-major in (rows, columns). Plain value.
struct ParameterSlice {
  std::vector<IndexRange> rows;
  std::vector<IndexRange> columns;
  int64_t whole_columns = 0;
  int64_t padding_rows = 0;  // local rows after the others, of no whole row; always 0

  int64_t num_rows() const;  // local, padding included
  int64_t num_columns() const;
};

ParameterSlice WholeSlice(const Shape& shape);
// Rows of a matrix (R, C), and as many rows of padding as asked for.
ParameterSlice RowSlice(const Shape& shape, std::vector<IndexRange> rows, int64_t padding_rows = 0);
// Columns of a matrix (R, C), or elements of a vector (C).
ParameterSlice ColumnSlice(const Shape& shape, std::vector<IndexRange> columns);
// The local shape: of as many dims as the whole's.
Shape LocalShape(const ParameterSlice& slice, const Shape& whole);

// Elements that are adjacent both here and in the whole.
struct SliceRun {
  int64_t local_begin = 0;
  int64_t whole_begin = 0;
  int64_t count = 0;
};
// All runs in local order; padding is in none. Ends at the first error, which it returns.
absl::Status ForEachRun(const ParameterSlice& slice,
                        const std::function<absl::Status(const SliceRun&)>& body);

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_PARAMETER_SLICE_H_
