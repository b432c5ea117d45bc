// Context attention by all-to-all between tokens and heads.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_ULYSSES_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_ULYSSES_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/context_parallel/group_attention.h"

namespace tessera {

// Heads of which one rank attends to whole sequences: cp divides N, and either cp divides G, or G
// divides cp and a kv head is held by cp / G ranks.
struct UlyssesHeads {
  UlyssesHeads(const AttentionShape& local, int cp_size)
      : heads(local.heads / cp_size),
        replicas(cp_size > local.kv_heads ? cp_size / local.kv_heads : 1),
        kv_heads(local.kv_heads * replicas / cp_size) {}

  int64_t heads;     // N / cp
  int64_t replicas;  // ranks that hold a kv head
  int64_t kv_heads;  // of a rank
};

// INVALID_ARGUMENT where heads cannot be divided so, naming the numbers.
absl::Status CheckUlyssesHeads(const AttentionShape& local, int cp_size);

// As ContextAttention. q, k and v go to all tokens of N/cp heads, in the order of tokens; causal
// attention; the output goes back. Backward sends q, k, v, output and d_output, and takes back the
// gradients: those of replicated kv heads in fp32, added in the order of ranks.
class UlyssesAttention : public GroupAttention {
 public:
  // REQUIRES: CheckUlyssesHeads.
  UlyssesAttention(const AttentionShape& local, DType dtype, bool backward, Communicator* cp_group,
                   Device& device);

  absl::Status Forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                       const Tensor& log_sum_exp, Stream& stream) override;
  absl::Status Backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                        const Tensor& log_sum_exp, const Tensor& d_output, const Tensor& d_q,
                        const Tensor& d_k, const Tensor& d_v, Stream& stream) override;

 private:
  // Local rows whose heads go to, or come from, the ranks that attend to them.
  struct Part {
    Tensor rows;   // (M, heads of all ranks)
    bool of_keys;  // the heads are kv heads
  };

  // Columns of a part that one rank attends to: how many, and which are rank's.
  int64_t ColumnsOf(const Part& part) const { return part.of_keys ? kv_columns_ : head_columns_; }
  Tensor HeadsOf(const Part& part, int rank) const;
  // A message in a buffer: (cp * M, columns), of which rows rank * M on are to or from that rank.
  Tensor MessageIn(const Tensor& buffer, DType dtype, int64_t columns) const;
  // The returned rows (B*T, columns of all parts) = the parts' heads of this rank, of all tokens in
  // order.
  absl::StatusOr<Tensor> ToHeads(absl::Span<const Part> parts, Stream& stream);
  // Sends natural (B*T, columns) to the tokens' ranks; the message that comes back.
  absl::StatusOr<Tensor> ToTokens(const Tensor& natural, Stream& stream);
  // part's rows = columns from `begin` on of the message, those of each rank.
  absl::Status Unpack(const Tensor& message, int64_t begin, const Part& part, Stream& stream);

  const UlyssesHeads split_;
  const int64_t time_;          // T
  const int64_t head_columns_;  // N/cp * H
  const int64_t kv_columns_;    // kv heads of a rank * H
  AttentionShape shape_;        // whole sequences, heads of a rank
  Tensor send_, receive_;       // uint8: any message
  Tensor natural_;              // (B*T, q | k | v) S, and in backward | output | d_output
  Tensor result_;               // (B*T, output) S, or in backward d_q, and d_k | d_v in S
  Tensor d_kv_;                 // (B*T, d_k | d_v) fp32; null without replicas
  Tensor workspace_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_ULYSSES_ATTENTION_H_
