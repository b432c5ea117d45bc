// Ring attention: K and V are passed round the group while each rank attends to what it holds.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_RING_ATTENTION_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_RING_ATTENTION_H_

#include <array>
#include <memory>

#include "worker/context_parallel/group_attention.h"

namespace tessera {

// As ContextAttention. At step s a rank has the keys of cp_rank - s and sends them on to
// cp_rank + 1 while it computes. Partial results are merged in the order of steps.
//
// Backward passes K and V the same way. The fp32 gradients of a rank's K and V begin at its right
// neighbour (step 1), travel with them, grow by each rank's part and come home from its left one,
// where its own part is added last: cp - 1 exchanges of each.
class RingAttention : public GroupAttention {
 public:
  RingAttention(const AttentionShape& local, DType dtype, bool backward, Communicator* cp_group,
                Device& device);

  absl::Status Forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                       const Tensor& log_sum_exp, Stream& stream) override;
  absl::Status Backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                        const Tensor& log_sum_exp, const Tensor& d_output, const Tensor& d_q,
                        const Tensor& d_k, const Tensor& d_v, Stream& stream) override;

 private:
  using Handle = std::unique_ptr<CollectiveHandle>;

  // What one step attends to.
  struct Step {
    AttentionShape shape;
    int first_half = 0, halves = 0;  // of the queries
  };
  Step StepOf(int key_cp_rank) const;
  int Source(int step) const { return (cp_rank_ - step + cp_size_) % cp_size_; }

  // K and V side by side to kv_[0], from which they start.
  absl::Status Pack(const Tensor& k, const Tensor& v, Stream& stream);
  // Sends kv_[step % 2] on and receives the next keys into the other.
  absl::Status StartExchange(int step, Stream& stream);
  absl::Status FinishExchange();
  absl::Status SendGradients(int step, Stream& stream);
  absl::Status ReceiveGradients(int step, Stream& stream);
  // d_q_sum += d_q_partial_, at the step's queries.
  absl::Status AddQueryGradients(const Step& step, const Tensor& d_q_sum, Stream& stream);

  const int next_, previous_;   // cp_send_rank, cp_recv_rank
  std::array<Tensor, 2> kv_;    // (M, 2*G*H)
  Tensor sum_;                  // (M, N*H) fp32: output, or d_q; null where S is fp32
  Tensor partial_;              // (M, N*H) fp32: of one step
  Tensor partial_sums_;         // (B, N, T/cp) fp32
  Tensor home_;                 // (M, 2*G*H) fp32: this rank's part of its own keys' gradients
  std::array<Tensor, 2> d_kv_;  // (M, 2*G*H) fp32: travel
  Tensor d_kv_partial_;         // (M, 2*G*H) fp32: of one step; null where cp is 2
  Tensor workspace_;
  Handle send_, receive_;                // of K and V
  std::array<Handle, 2> gradient_send_;  // of d_kv_
  Handle gradient_receive_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_RING_ATTENTION_H_
