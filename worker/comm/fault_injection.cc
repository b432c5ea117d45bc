#include "worker/comm/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <utility>

namespace tessera {

void Fault::KillProcess() { kill(getpid(), SIGKILL); }

struct FaultInjectionCommunicator::State {
  std::mutex mutex;
  std::condition_variable aborted;
  absl::Status reason ABSL_GUARDED_BY(mutex);
  bool is_hanging ABSL_GUARDED_BY(mutex) = false;
  PendingOperation hanging ABSL_GUARDED_BY(mutex);
};

class FaultInjectionCommunicator::Hang : public CollectiveHandle {
 public:
  Hang(std::shared_ptr<State> state, PendingOperation operation)
      : state_(std::move(state)), operation_(operation) {}
  absl::Status Wait() override {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->hanging = operation_;
    state_->is_hanging = true;
    while (state_->reason.ok()) state_->aborted.wait(lock);
    state_->is_hanging = false;
    return state_->reason;
  }

 private:
  const std::shared_ptr<State> state_;
  const PendingOperation operation_;
};

FaultInjectionCommunicator::FaultInjectionCommunicator(std::unique_ptr<Communicator> base,
                                                       const Fault& fault)
    : base_(std::move(base)), fault_(fault), state_(std::make_shared<State>()) {}

FaultInjectionCommunicator::~FaultInjectionCommunicator() = default;

template <class Start>
FaultInjectionCommunicator::Started FaultInjectionCommunicator::Count(CollectiveKind kind,
                                                                      const Start& start) {
  ++operations_;
  const bool is_counted = fault_.only.value_or(kind) == kind;
  if (is_counted) ++counted_;
  const bool is_here = group().members[group_rank()].global_rank == fault_.global_rank;
  if (!is_here || counted_ < fault_.operation) return start();
  if (fault_.kind == Fault::Kind::kFail) return fault_.status;
  if (!is_counted || counted_ > fault_.operation) return start();
  if (fault_.kind == Fault::Kind::kHang) {
    PendingOperation operation;
    operation.kind = kind;
    operation.sequence = operations_;
    return std::make_unique<Hang>(state_, operation);
  }
  if (fault_.kind == Fault::Kind::kDie) fault_.die();
  Started started = start();
  fault_.die();
  return started;
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartAllReduce(const Tensor& tensor,
                                                                               ReduceOp op,
                                                                               Stream& stream) {
  return Count(CollectiveKind::kAllReduce,
               [&] { return base_->StartAllReduce(tensor, op, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartReduceScatter(
    const Tensor& input, const Tensor& output, ReduceOp op, Stream& stream) {
  return Count(CollectiveKind::kReduceScatter,
               [&] { return base_->StartReduceScatter(input, output, op, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartAllGather(const Tensor& input,
                                                                               const Tensor& output,
                                                                               Stream& stream) {
  return Count(CollectiveKind::kAllGather,
               [&] { return base_->StartAllGather(input, output, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartBroadcast(const Tensor& tensor,
                                                                               int root_group_rank,
                                                                               Stream& stream) {
  return Count(CollectiveKind::kBroadcast,
               [&] { return base_->StartBroadcast(tensor, root_group_rank, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartAllToAll(const Tensor& input,
                                                                              const Tensor& output,
                                                                              Stream& stream) {
  return Count(CollectiveKind::kAllToAll,
               [&] { return base_->StartAllToAll(input, output, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartSend(const Tensor& tensor,
                                                                          int to_group_rank,
                                                                          Stream& stream) {
  return Count(CollectiveKind::kSend,
               [&] { return base_->StartSend(tensor, to_group_rank, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartRecv(const Tensor& tensor,
                                                                          int from_group_rank,
                                                                          Stream& stream) {
  return Count(CollectiveKind::kRecv,
               [&] { return base_->StartRecv(tensor, from_group_rank, stream); });
}

FaultInjectionCommunicator::Started FaultInjectionCommunicator::StartBarrier(Stream& stream) {
  return Count(CollectiveKind::kBarrier, [&] { return base_->StartBarrier(stream); });
}

void FaultInjectionCommunicator::Abort(const absl::Status& reason) {
  base_->Abort(reason);
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->reason.ok()) state_->reason = reason;
  state_->aborted.notify_all();
}

bool FaultInjectionCommunicator::pending(PendingOperation* operation) const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->is_hanging) return base_->pending(operation);
  *operation = state_->hanging;
  return true;
}

}  // namespace tessera
