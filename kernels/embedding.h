// Token and position embedding, together or apart: with a token table split by rows over ranks,
// each rank looks up what it holds, the sum over ranks is formed, and positions are added after.
//
// Legend: B sequences of T tokens, M = B*T rows, V rows of the token table, P rows of the position
// table, C channels. Tables and activations of one element type S (fp32, bf16, fp16), gradients of
// tables S or fp32, ids and positions int32; all contiguous.
#ifndef TESSERA_KERNELS_EMBEDDING_H_
#define TESSERA_KERNELS_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct EmbeddingOptions {
  // The token table holds the rows of ids [first_id, first_id + V).
  int64_t first_id = 0;
  // Valid ids are [0, num_ids), of which any number are in this table; 0: the table is whole,
  // num_ids = V and first_id must be 0.
  int64_t num_ids = 0;
  // Position of each row: n int32 for some n that divides M, row i is positions[i % n] (n = T: the
  // same in every sequence; n = M: each row its own). Null: i % T, and then T <= P.
  Tensor positions;
};

// output (M, C) = token_table[ids[b, t] - first_id] + position_table[position]; the first summand
// is 0 for an id outside of the table.
// ids (B, T); token_table (V, C); position_table (P, C), or null for none. INVALID_ARGUMENT: shapes
// or dtypes that do not fit, or an id outside [0, num_ids) or a position outside [0, P) (both
// checked on CPU only).
absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output,
                              const EmbeddingOptions& options, Stream& stream);

// d_token_table (V, C) += rows of d_output (M, C) with that id, in ascending order of rows, rows of
// ids outside of the table left out; d_position_table (P, C) as AddPositionsBackward, null for
// none. Sums are fp32 and are rounded once a call.
// Errors as EmbeddingForward.
absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const Tensor& d_position_table,
                               const EmbeddingOptions& options, Stream& stream);

// output (M, C) += position_table[position], positions as in EmbeddingOptions; time is T, read
// where positions is null. After EmbeddingForward without a position table: the same bits as with
// one. Errors as EmbeddingForward.
absl::Status AddPositions(const Tensor& position_table, const Tensor& positions, int64_t time,
                          const Tensor& output, Stream& stream);

// d_position_table (P, C) += rows of d_output (M, C) of that position, in ascending order of rows;
// fp32, rounded once a call. Errors as EmbeddingForward.
absl::Status AddPositionsBackward(const Tensor& d_output, const Tensor& positions, int64_t time,
                                  const Tensor& d_position_table, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_EMBEDDING_H_
