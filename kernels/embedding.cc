#include "kernels/embedding.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {
namespace {

void CheckTable(absl::string_view name, const Tensor& table, DType dtype, bool gradients,
                Shape shape, ArgumentChecks& checks) {
  if (gradients) {
    checks.Accumulated(name, table, dtype, shape);
  } else {
    checks.Dense(name, table, dtype, shape);
  }
}

// gradients: the table is a gradient that is added to.
absl::Status CheckPositions(absl::string_view operation, bool gradients, const Tensor& table,
                            const Tensor& positions, int64_t time, const Tensor& rows,
                            Stream& stream) {
  ArgumentChecks checks(operation, stream);
  checks.That(table.shape().num_dims() == 2 && rows.shape().num_dims() == 2,
              "position table and activations must have two dims");
  if (!checks.status().ok()) return checks.status();
  const int64_t channels = rows.shape().dim(1), num_positions = table.shape().dim(0);
  const int64_t period = positions.is_null() ? time : positions.num_elements();
  checks.Floating("activations", rows).Dense("activations", rows, rows.dtype(), rows.shape());
  CheckTable("position table", table, rows.dtype(), gradients, {num_positions, channels}, checks);
  if (!positions.is_null()) {
    checks.Dense("positions", positions, DType::kInt32, positions.shape());
  } else {
    checks.That(num_positions >= time, "more tokens in a sequence than rows in the position table");
  }
  return checks
      .That(period >= 1 && rows.shape().dim(0) % period == 0,
            "the number of positions must divide the number of rows")
      .status();
}

absl::Status CheckEmbedding(absl::string_view operation, bool gradients, const Tensor& ids,
                            const Tensor& tokens, const Tensor& rows,
                            const EmbeddingOptions& options, Stream& stream) {
  ArgumentChecks checks(operation, stream);
  checks
      .That(ids.shape().num_dims() == 2 && tokens.shape().num_dims() == 2,
            "ids and token table must have two dims")
      .That(options.first_id >= 0 && options.num_ids >= 0 &&
                (options.num_ids > 0 || options.first_id == 0),
            "a part of a token table, by its first_id, needs num_ids");
  if (!checks.status().ok()) return checks.status();
  const int64_t vocab = tokens.shape().dim(0), channels = tokens.shape().dim(1);
  checks.Dense("ids", ids, DType::kInt32, ids.shape())
      .Floating("activations", rows)
      .Dense("activations", rows, rows.dtype(), {ids.num_elements(), channels});
  CheckTable("token table", tokens, rows.dtype(), gradients, {vocab, channels}, checks);
  return checks.status();
}

}  // namespace

absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output,
                              const EmbeddingOptions& options, Stream& stream) {
  absl::Status status =
      CheckEmbedding("embedding_forward", false, ids, token_table, output, options, stream);
  if (status.ok() && !position_table.is_null()) {
    status = CheckPositions("embedding_forward", false, position_table, options.positions,
                            ids.shape().dim(1), output, stream);
  }
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kEmbedding);
    return cpu::EmbeddingForward(ids, token_table, position_table, output, options,
                                 cpu::NumThreads(stream));
  }
  return NoBackend("embedding_forward", stream);
}

absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const Tensor& d_position_table,
                               const EmbeddingOptions& options, Stream& stream) {
  absl::Status status =
      CheckEmbedding("embedding_backward", true, ids, d_token_table, d_output, options, stream);
  if (status.ok() && !d_position_table.is_null()) {
    status = CheckPositions("embedding_backward", true, d_position_table, options.positions,
                            ids.shape().dim(1), d_output, stream);
  }
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kEmbedding);
    status = cpu::EmbeddingBackward(ids, d_output, d_token_table, options, cpu::NumThreads(stream));
    if (!status.ok() || d_position_table.is_null()) return status;
    return cpu::AddPositionsBackward(d_output, options.positions, ids.shape().dim(1),
                                     d_position_table, cpu::NumThreads(stream));
  }
  return NoBackend("embedding_backward", stream);
}

absl::Status AddPositions(const Tensor& position_table, const Tensor& positions, int64_t time,
                          const Tensor& output, Stream& stream) {
  absl::Status status =
      CheckPositions("add_positions", false, position_table, positions, time, output, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kEmbedding);
    return cpu::AddPositions(position_table, positions, time, output, cpu::NumThreads(stream));
  }
  return NoBackend("add_positions", stream);
}

absl::Status AddPositionsBackward(const Tensor& d_output, const Tensor& positions, int64_t time,
                                  const Tensor& d_position_table, Stream& stream) {
  absl::Status status = CheckPositions("add_positions_backward", true, d_position_table, positions,
                                       time, d_output, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kEmbedding);
    return cpu::AddPositionsBackward(d_output, positions, time, d_position_table,
                                     cpu::NumThreads(stream));
  }
  return NoBackend("add_positions_backward", stream);
}

}  // namespace tessera
