// Token and position embedding.
//
// Legend: B sequences of T tokens, V rows of the token table, P >= T rows of the position table,
// C channels. Tables and activations of one element type S (fp32, bf16, fp16), gradients of tables
// S or fp32, ids int32; all contiguous.
#ifndef TESSERA_KERNELS_EMBEDDING_H_
#define TESSERA_KERNELS_EMBEDDING_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output (B*T, C) = token_table[ids[b, t]] + position_table[t]
// ids (B, T); token_table (V, C); position_table (P, C), or null for none. INVALID_ARGUMENT: shapes
// or dtypes that do not fit, or an id outside [0, V) (checked on CPU only).
absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output, Stream& stream);

// d_token_table (V, C) += rows of d_output (B*T, C) with that id, in ascending order of rows;
// d_position_table (P, C) += rows of that position, in ascending order; null for none. Sums are
// fp32 and are rounded once a call.
// Errors as EmbeddingForward.
absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const Tensor& d_position_table,
                               Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_EMBEDDING_H_
