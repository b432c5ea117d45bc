#include "worker/model/embedding.h"

#include "kernels/embedding.h"
#include "kernels/status_macros.h"

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

EmbeddingOptions PartOptions(int64_t vocab_size, const TensorParallel& tp) {
  EmbeddingOptions options;
  options.first_id = VocabularyPartOf(tp.layout(), vocab_size).ids.begin;
  options.num_ids = vocab_size;
  return options;
}

}  // namespace

EmbeddingTensors EmbeddingTensors::FromUnit(absl::Span<const Tensor> unit) {
  return {unit[0], unit.size() > 1 ? unit[1] : Tensor()};
}

absl::Status Embedding::Forward(const Tensor& ids, int64_t first_position, const Tensor& positions,
                                const EmbeddingTensors& parameters, const ParallelScratch& scratch,
                                const Tensor& output, Stream& stream) const {
  Tensor table = parameters.positions;
  if (!table.is_null()) table = RowsFrom(table, first_position);
  if (!tp_.is_split()) {
    EmbeddingOptions options;
    options.positions = positions;
    return EmbeddingForward(ids, parameters.tokens, table, output, options, stream);
  }
  const Tensor& partial = tp_.shards_rows() ? scratch.partial : output;
  TESSERA_RETURN_IF_ERROR(EmbeddingForward(ids, parameters.tokens, Tensor(), partial,
                                           PartOptions(vocab_size_, tp_), stream));
  TESSERA_RETURN_IF_ERROR(tp_.Reduce(partial, output, stream));
  if (table.is_null()) return absl::OkStatus();
  return AddPositions(table, positions, ids.shape().last_dim(), output, stream);
}

absl::Status Embedding::Backward(const Tensor& ids, const Tensor& positions, const Tensor& d_output,
                                 const ParallelScratch& scratch, const EmbeddingTensors& gradients,
                                 Stream& stream) const {
  if (!tp_.is_split()) {
    EmbeddingOptions options;
    options.positions = positions;
    return EmbeddingBackward(ids, d_output, gradients.tokens, gradients.positions, options, stream);
  }
  TESSERA_ASSIGN_OR_RETURN(const Tensor whole, tp_.Gather(d_output, scratch.gathered, stream));
  TESSERA_RETURN_IF_ERROR(EmbeddingBackward(ids, whole, gradients.tokens, Tensor(),
                                            PartOptions(vocab_size_, tp_), stream));
  if (gradients.positions.is_null()) return absl::OkStatus();
  return AddPositionsBackward(d_output, positions, ids.shape().last_dim(), gradients.positions,
                              stream);
}

}  // namespace tessera
