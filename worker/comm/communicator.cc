#include "worker/comm/communicator.h"

#include <utility>

namespace tessera {
namespace {

absl::Status WaitFor(absl::StatusOr<std::unique_ptr<CollectiveHandle>> handle) {
  if (!handle.ok()) return handle.status();
  return (*handle)->Wait();
}

}  // namespace

const char* CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kSend:
      return "send";
    case CollectiveKind::kRecv:
      return "recv";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

absl::Status Communicator::AllReduce(const Tensor& tensor, ReduceOp op, Stream& stream) {
  return WaitFor(StartAllReduce(tensor, op, stream));
}

absl::Status Communicator::ReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                         Stream& stream) {
  return WaitFor(StartReduceScatter(input, output, op, stream));
}

absl::Status Communicator::AllGather(const Tensor& input, const Tensor& output, Stream& stream) {
  return WaitFor(StartAllGather(input, output, stream));
}

absl::Status Communicator::Broadcast(const Tensor& tensor, int root_group_rank, Stream& stream) {
  return WaitFor(StartBroadcast(tensor, root_group_rank, stream));
}

absl::Status Communicator::AllToAll(const Tensor& input, const Tensor& output, Stream& stream) {
  return WaitFor(StartAllToAll(input, output, stream));
}

absl::Status Communicator::Send(const Tensor& tensor, int to_group_rank, Stream& stream) {
  return WaitFor(StartSend(tensor, to_group_rank, stream));
}

absl::Status Communicator::Recv(const Tensor& tensor, int from_group_rank, Stream& stream) {
  return WaitFor(StartRecv(tensor, from_group_rank, stream));
}

absl::Status Communicator::Barrier(Stream& stream) { return WaitFor(StartBarrier(stream)); }

}  // namespace tessera
