// A started send or receive between two members.
#ifndef TESSERA_WORKER_COMM_EXCHANGE_H_
#define TESSERA_WORKER_COMM_EXCHANGE_H_

#include <cstdint>
#include <memory>

#include "kernels/tensor.h"
#include "worker/comm/membership.h"
#include "worker/comm/operation.h"
#include "worker/comm/packet.h"

namespace tessera {

// Complete once the receiver has copied or, over a link, once the data is on its way. The
// membership outlives it.
class SendOperation : public Operation {
 public:
  // index counts the messages to that member from 1.
  SendOperation(Membership& group, int64_t sequence, uint64_t index, int to, const Tensor& tensor);

  // RESOURCE_EXHAUSTED where too many sends to that member are unfinished.
  absl::Status Start();
  absl::StatusOr<bool> Advance() override;
  bool Misses(int member) const override;
  Transfer* blocker() const override { return packet_ ? packet_->blocker() : nullptr; }
  void Cancel() override { packet_.reset(); }

 private:
  Membership& group_;
  const uint64_t index_;
  const int to_;
  const Tensor tensor_;
  std::unique_ptr<OutgoingPacket> packet_;  // over a link
};

class RecvOperation : public Operation {
 public:
  // index counts the messages from that member from 1.
  RecvOperation(Membership& group, int64_t sequence, uint64_t index, int from,
                const Tensor& tensor);

  absl::Status Start();
  absl::StatusOr<bool> Advance() override;
  bool Misses(int member) const override;
  Transfer* blocker() const override { return packet_ ? packet_->blocker() : nullptr; }
  void Cancel() override { packet_.reset(); }

 private:
  absl::StatusOr<bool> AdvanceLinked();
  absl::Status Agree(DType dtype, int64_t num_elements) const;

  Membership& group_;
  const uint64_t index_;
  const int from_;
  const Tensor tensor_;
  int64_t moved_ = 0;                       // bytes
  std::unique_ptr<IncomingPacket> packet_;  // over a link
  bool agreed_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_EXCHANGE_H_
