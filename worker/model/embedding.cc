#include "worker/model/embedding.h"

#include "kernels/embedding.h"

namespace tessera {
namespace {

// Rows of a table from `row` on.
Tensor RowsFrom(const Tensor& table, int64_t row) {
  if (row == 0) return table;
  const int64_t columns = table.shape().last_dim(), rows = table.shape().dim(0) - row;
  return table.Reshape({table.num_elements()})
      .Slice(row * columns, rows * columns)
      .Reshape({rows, columns});
}

}  // namespace

EmbeddingTensors EmbeddingTensors::FromUnit(absl::Span<const Tensor> unit) {
  return {unit[0], unit.size() > 1 ? unit[1] : Tensor()};
}

absl::Status Embedding::Forward(const Tensor& ids, int64_t first_position,
                                const EmbeddingTensors& parameters, const Tensor& output,
                                Stream& stream) {
  Tensor positions = parameters.positions;
  if (!positions.is_null()) positions = RowsFrom(positions, first_position);
  return EmbeddingForward(ids, parameters.tokens, positions, output, stream);
}

absl::Status Embedding::Backward(const Tensor& ids, const Tensor& d_output,
                                 const EmbeddingTensors& gradients, Stream& stream) {
  return EmbeddingBackward(ids, d_output, gradients.tokens, gradients.positions, stream);
}

}  // namespace tessera
