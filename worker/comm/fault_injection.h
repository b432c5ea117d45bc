// A communicator that fails, hangs or dies where a test wants it to.
#ifndef TESSERA_WORKER_COMM_FAULT_INJECTION_H_
#define TESSERA_WORKER_COMM_FAULT_INJECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "worker/comm/communicator.h"

namespace tessera {

struct Fault {
  enum class Kind : uint8_t {
    kFail,  // the operation and every later one return `status`; the other members are not told
    kHang,  // waiting for the operation ends only with Abort, and with its reason
    kDie,   // `die` is called instead of starting the operation
    kDieStarted,  // `die` is called when the operation has started, before anyone waits for it
  };
  Kind kind = Kind::kFail;
  int global_rank = 0;    // elsewhere nothing happens
  int64_t operation = 1;  // counted from 1, over all kinds, or of `only`
  absl::Status status = absl::InternalError("injected fault");
  std::optional<CollectiveKind> only = std::nullopt;
  std::function<void()> die = KillProcess;  // does not return

  // SIGKILL to this process.
  static void KillProcess();
};

// Owns `base`. Thread-safety as Communicator.
class FaultInjectionCommunicator : public Communicator {
 public:
  FaultInjectionCommunicator(std::unique_ptr<Communicator> base, const Fault& fault);
  ~FaultInjectionCommunicator() override;

  using Started = absl::StatusOr<std::unique_ptr<CollectiveHandle>>;
  const GroupSpec& group() const override { return base_->group(); }
  Started StartAllReduce(const Tensor& tensor, ReduceOp op, Stream& stream) override;
  Started StartReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                             Stream& stream) override;
  Started StartAllGather(const Tensor& input, const Tensor& output, Stream& stream) override;
  Started StartBroadcast(const Tensor& tensor, int root_group_rank, Stream& stream) override;
  Started StartAllToAll(const Tensor& input, const Tensor& output, Stream& stream) override;
  Started StartSend(const Tensor& tensor, int to_group_rank, Stream& stream) override;
  Started StartRecv(const Tensor& tensor, int from_group_rank, Stream& stream) override;
  Started StartBarrier(Stream& stream) override;
  void Abort(const absl::Status& reason) override;
  bool pending(PendingOperation* operation) const override;
  CommunicatorStats stats() const override { return base_->stats(); }

 private:
  class Hang;
  struct State;

  // Counts the operation, and calls start unless the fault is instead.
  template <class Start>
  Started Count(CollectiveKind kind, const Start& start);

  const std::unique_ptr<Communicator> base_;
  const Fault fault_;
  int64_t operations_ = 0;
  int64_t counted_ = 0;  // of fault_.only
  const std::shared_ptr<State> state_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_FAULT_INJECTION_H_
