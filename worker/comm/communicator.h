// Collectives of one group of ranks, and the promise every implementation keeps:
//
//   A reduction is summed by the owner of each block, in ascending group rank, in fp32 (int64 in
//   int64), and rounded once to the element type. So a result depends neither on timing nor on
//   which hosts the ranks are on, and AllReduce equals ReduceScatter followed by AllGather bit for
//   bit.
//
// Block b of n elements over a group of size g is elements [b*s, min(n, (b+1)*s)), s = ceil(n/g).
#ifndef TESSERA_WORKER_COMM_COMMUNICATOR_H_
#define TESSERA_WORKER_COMM_COMMUNICATOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

enum class ReduceOp : uint8_t { kSum, kMax };

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
};
inline constexpr int kNumCollectiveKinds = 8;
const char* CollectiveKindName(CollectiveKind kind);  // "all_reduce", ...

// One group as the coordinator assigned it. The same on all members but for group_rank.
struct GroupSpec {
  std::string name;     // "dp", "tp[0,0,1]": the axis and which of its groups; unique in a job
  std::string job_uid;  // with epoch and name, identifies the group across processes
  int64_t epoch = 0;    // fencing token: members of different epochs never meet
  int group_rank = 0;   // this process's index in members
  struct Member {
    int global_rank = 0;
    std::string worker;   // "workers/w0", for messages
    std::string address;  // of its Transport, opaque
  };
  std::vector<Member> members;
  // How long a member may keep the others waiting (DEADLINE_EXCEEDED names who is missing).
  absl::Duration timeout = absl::Seconds(60);
};

// What a communicator is doing now; read by another thread to name a hang or an abort.
struct PendingOperation {
  CollectiveKind kind = CollectiveKind::kBarrier;
  int64_t sequence = 0;  // counts this communicator's operations from 1
  int64_t size_bytes = 0;
};

struct CollectiveCount {
  int64_t calls = 0;
  int64_t bytes = 0;  // payload as PyTorch counts it: the larger of input and output, per rank
  // Between the start of Wait and its end: the data's movement, and waiting for members.
  int64_t wait_ns = 0;
};
using CommunicatorStats = std::array<CollectiveCount, kNumCollectiveKinds>;

// An operation that has been started. Wait() completes it and must be called exactly once, on the
// thread that started it, before the tensors are touched again. Handles of one communicator are
// waited for in the order of their start, except sends and receives, which may complete in any
// order. Destroying an unwaited handle waits.
class CollectiveHandle {
 public:
  virtual ~CollectiveHandle() = default;
  // OK, or: ABORTED with the reason given to Abort(); DEADLINE_EXCEEDED; UNAVAILABLE (a member is
  // gone); INVALID_ARGUMENT (members disagree on kind, size or dtype). Errors name group,
  // group rank, operation, sequence and bytes. After an error every later call returns it.
  virtual absl::Status Wait() = 0;
};

// Owned by the worker's job; used by one thread, except Abort, pending and stats (any thread). All
// members issue the same collectives in the same order. Tensors are contiguous, on the transport's
// device, of dtype float32, bfloat16, float16 or int64 (broadcast, gather, all-to-all, send and
// receive take any dtype). A group of one works and moves nothing but local copies.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const GroupSpec& group() const = 0;
  int size() const { return static_cast<int>(group().members.size()); }
  int group_rank() const { return group().group_rank; }

  // tensor (n) = reduction over all members, on every member.
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartAllReduce(const Tensor& tensor,
                                                                           ReduceOp op,
                                                                           Stream& stream) = 0;
  // output (n/g) = block group_rank of the reduction of input (n). output may be that block of
  // input itself, or be outside of it. REQUIRES n % g == 0.
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartReduceScatter(const Tensor& input,
                                                                               const Tensor& output,
                                                                               ReduceOp op,
                                                                               Stream& stream) = 0;
  // output (g*n) = the members' inputs (n) in group order. input may be its own block of output.
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartAllGather(const Tensor& input,
                                                                           const Tensor& output,
                                                                           Stream& stream) = 0;
  // tensor (n) = the root's, on every member.
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartBroadcast(const Tensor& tensor,
                                                                           int root_group_rank,
                                                                           Stream& stream) = 0;
  // Block r of output = block group_rank of member r's input; both (n), n % g == 0, not
  // overlapping.
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartAllToAll(const Tensor& input,
                                                                          const Tensor& output,
                                                                          Stream& stream) = 0;
  // Messages between one pair of members arrive in the order they were sent.
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartSend(const Tensor& tensor,
                                                                      int to_group_rank,
                                                                      Stream& stream) = 0;
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartRecv(const Tensor& tensor,
                                                                      int from_group_rank,
                                                                      Stream& stream) = 0;
  virtual absl::StatusOr<std::unique_ptr<CollectiveHandle>> StartBarrier(Stream& stream) = 0;

  // Every pending and later operation, here and, within 100 ms, on every other member that is still
  // there, ends with `reason`. Idempotent: the first reason stays. Any thread.
  virtual void Abort(const absl::Status& reason) = 0;
  // The operation that is waited for now, or the one with which the communicator failed; nothing
  // between operations. Any thread.
  virtual bool pending(PendingOperation* operation) const = 0;
  virtual CommunicatorStats stats() const = 0;

  // Start and Wait in one.
  absl::Status AllReduce(const Tensor& tensor, ReduceOp op, Stream& stream);
  absl::Status ReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                             Stream& stream);
  absl::Status AllGather(const Tensor& input, const Tensor& output, Stream& stream);
  absl::Status Broadcast(const Tensor& tensor, int root_group_rank, Stream& stream);
  absl::Status AllToAll(const Tensor& input, const Tensor& output, Stream& stream);
  absl::Status Send(const Tensor& tensor, int to_group_rank, Stream& stream);
  absl::Status Recv(const Tensor& tensor, int from_group_rank, Stream& stream);
  absl::Status Barrier(Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_COMMUNICATOR_H_
