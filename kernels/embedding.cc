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

// gradients: the tables are gradients that are added to.
absl::Status CheckEmbedding(absl::string_view operation, bool gradients, const Tensor& ids,
                            const Tensor& tokens, const Tensor& positions, const Tensor& rows,
                            Stream& stream) {
  ArgumentChecks checks(operation, stream);
  checks.That(ids.shape().num_dims() == 2 && tokens.shape().num_dims() == 2,
              "ids and token table must have two dims");
  if (!checks.status().ok()) return checks.status();
  const int64_t batch = ids.shape().dim(0), time = ids.shape().dim(1);
  const int64_t vocab = tokens.shape().dim(0), channels = tokens.shape().dim(1);
  checks.Dense("ids", ids, DType::kInt32, {batch, time})
      .Floating("activations", rows)
      .Dense("activations", rows, rows.dtype(), {batch * time, channels});
  CheckTable("token table", tokens, rows.dtype(), gradients, {vocab, channels}, checks);
  if (!positions.is_null()) {
    const int64_t num_positions = positions.shape().num_rows();
    CheckTable("position table", positions, rows.dtype(), gradients, {num_positions, channels},
               checks);
    checks.That(num_positions >= time, "more tokens in a sequence than rows in the position table");
  }
  return checks.status();
}

}  // namespace

absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output, Stream& stream) {
  absl::Status status =
      CheckEmbedding("embedding_forward", false, ids, token_table, position_table, output, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kEmbedding);
    return cpu::EmbeddingForward(ids, token_table, position_table, output, cpu::NumThreads(stream));
  }
  return NoBackend("embedding_forward", stream);
}

absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const Tensor& d_position_table,
                               Stream& stream) {
  absl::Status status = CheckEmbedding("embedding_backward", true, ids, d_token_table,
                                       d_position_table, d_output, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kEmbedding);
    return cpu::EmbeddingBackward(ids, d_output, d_token_table, d_position_table,
                                  cpu::NumThreads(stream));
  }
  return NoBackend("embedding_backward", stream);
}

}  // namespace tessera
