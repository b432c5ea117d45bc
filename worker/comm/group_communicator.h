// The CPU communicator: one schedule for every group, whatever mix of mapped memory and message
// links its members are reached through.
#ifndef TESSERA_WORKER_COMM_GROUP_COMMUNICATOR_H_
#define TESSERA_WORKER_COMM_GROUP_COMMUNICATOR_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "worker/comm/communicator.h"
#include "worker/comm/membership.h"
#include "worker/comm/operation.h"

namespace tessera {

class Waiter;

// Thread-safety as Communicator. Works on the calling thread only: an operation makes progress
// while its member waits for it or for another one of the same communicator.
//
// After a failed operation no member that still runs touches this member's tensors. The exception
// is a member stopped in the middle of an access (a debugger, SIGSTOP): it is waited for at most
// 80 ms, so its process must end before the memory is used again.
class GroupCommunicator : public Communicator {
 public:
  explicit GroupCommunicator(Membership membership);
  ~GroupCommunicator() override;
  GroupCommunicator(const GroupCommunicator&) = delete;
  GroupCommunicator& operator=(const GroupCommunicator&) = delete;

  const GroupSpec& group() const override { return membership_.spec; }
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartAllReduce(const Tensor& tensor,
                                                                   ReduceOp op,
                                                                   Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartReduceScatter(const Tensor& input,
                                                                       const Tensor& output,
                                                                       ReduceOp op,
                                                                       Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartAllGather(const Tensor& input,
                                                                   const Tensor& output,
                                                                   Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartBroadcast(const Tensor& tensor,
                                                                   int root_group_rank,
                                                                   Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartAllToAll(const Tensor& input,
                                                                  const Tensor& output,
                                                                  Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartSend(const Tensor& tensor,
                                                              int to_group_rank,
                                                              Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartRecv(const Tensor& tensor,
                                                              int from_group_rank,
                                                              Stream& stream) override;
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartBarrier(Stream& stream) override;
  void Abort(const absl::Status& reason) override;
  bool pending(PendingOperation* operation) const override;
  CommunicatorStats stats() const override;

 private:
  class Handle;

  absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartCollective(CollectiveKind kind,
                                                                    const Tensor& input,
                                                                    const Tensor& output,
                                                                    ReduceOp op, int root);
  template <class Started>
  absl::StatusOr<std::unique_ptr<CollectiveHandle>> Launch(std::unique_ptr<Started> operation);

  absl::Status CheckTensor(const Tensor& tensor, bool is_reduction) const;
  absl::Status CheckMember(int group_rank) const;
  absl::Status Refuse(CollectiveKind kind, int64_t size_bytes, const absl::Status& why) const;

  void SetPending(const Operation& operation);
  absl::Status Complete(Operation& operation);
  absl::Status AdvanceAll();
  // In a wait that has become slow: deadlines and members that are gone.
  absl::Status CheckPeers(const Operation& operation, const Waiter& waiter) const;
  // Tells all members, gets the tensors back, and returns the error of `operation`.
  absl::Status Fail(const Operation& operation, const absl::Status& why);
  // A connection that ended: because its member aborted the group, or `why`.
  absl::Status Explain(const absl::Status& why) const;
  void AwaitQuiet();
  bool has_failed() const;
  absl::Status failure() const;  // REQUIRES: has_failed()

  Membership membership_;
  // The communicator's thread only.
  std::vector<Operation*> started_;  // in order of their start; owned by their handles
  bool is_closed_ = false;           // an operation has failed: none is moved on any more
  int64_t next_sequence_ = 1;
  uint64_t next_collective_ = 1;
  std::vector<uint64_t> next_send_;  // by group rank
  std::vector<uint64_t> next_recv_;

  // Any thread.
  mutable std::mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_ = false;
  // pending(): kind and sequence in one word, 0 between operations and before a failed one.
  std::atomic<uint64_t> pending_ = 0;
  std::atomic<int64_t> pending_bytes_ = 0;
  struct Count {
    std::atomic<int64_t> wait_ns{0};
    std::atomic<int64_t> calls = 0;
    std::atomic<int64_t> bytes = 0;
  };
  std::array<Count, kNumCollectiveKinds> counts_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_GROUP_COMMUNICATOR_H_
