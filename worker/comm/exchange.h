// A started send or receive between two members.
#ifndef TESSERA_WORKER_COMM_EXCHANGE_H_
#define TESSERA_WORKER_COMM_EXCHANGE_H_

#include <cstdint>

#include "kernels/tensor.h"
#include "worker/comm/membership.h"
#include "worker/comm/operation.h"

namespace tessera {

// Complete once the receiver has copied. The membership outlives it.
class SendOperation : public Operation {
 public:
  // index counts the messages to that member from 1.
  SendOperation(Membership& group, int64_t sequence, uint64_t index, int to, const Tensor& tensor);

  // RESOURCE_EXHAUSTED where too many sends to that member are unfinished.
  absl::Status Start();
  absl::StatusOr<bool> Advance() override;
  bool Misses(int member) const override;

 private:
  Membership& group_;
  const uint64_t index_;
  const int to_;
  const Tensor tensor_;
};

class RecvOperation : public Operation {
 public:
  // index counts the messages from that member from 1.
  RecvOperation(Membership& group, int64_t sequence, uint64_t index, int from,
                const Tensor& tensor);

  absl::Status Start();
  absl::StatusOr<bool> Advance() override;
  bool Misses(int member) const override;

 private:
  absl::Status Agree(const Message& message) const;

  Membership& group_;
  const uint64_t index_;
  const int from_;
  const Tensor tensor_;
  int64_t moved_ = 0;  // bytes
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_EXCHANGE_H_
