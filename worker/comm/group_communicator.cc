#include "worker/comm/group_communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/comm/collective.h"
#include "worker/comm/exchange.h"
#include "worker/comm/reduce.h"
#include "worker/comm/waiter.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kQuietLimit(80);
constexpr std::chrono::milliseconds kNoticeLimit(20);
// How long a link to a process that has ended may say nothing of it.
constexpr absl::Duration kSilentLinkLimit = absl::Seconds(1);
constexpr int kKindShift = 56;

}  // namespace

class GroupCommunicator::Handle : public CollectiveHandle {
 public:
  Handle(GroupCommunicator& communicator, std::unique_ptr<Operation> operation)
      : communicator_(communicator), operation_(std::move(operation)) {}
  ~Handle() override {
    if (operation_ != nullptr) Wait().IgnoreError();
  }
  absl::Status Wait() override {
    absl::Status status = communicator_.Complete(*operation_);
    operation_.reset();
    return status;
  }

 private:
  GroupCommunicator& communicator_;
  std::unique_ptr<Operation> operation_;
};

GroupCommunicator::GroupCommunicator(Membership membership)
    : membership_(std::move(membership)),
      next_send_(membership_.size(), 1),
      next_recv_(membership_.size(), 1) {
  started_.reserve(16);
}

GroupCommunicator::~GroupCommunicator() {
  if (membership_.board) {
    membership_.board->board.Leave(membership_.self());
  }
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartAllReduce(
    const Tensor& tensor, ReduceOp op, Stream&) {
  return StartCollective(CollectiveKind::kAllReduce, tensor, tensor, op, 0);
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartReduceScatter(
    const Tensor& input, const Tensor& output, ReduceOp op, Stream&) {
  if (output.dtype() != input.dtype() || output.num_elements() * size() != input.num_elements()) {
    return Refuse(
        CollectiveKind::kReduceScatter, input.size_bytes(),
        absl::InvalidArgumentError(absl::StrCat("the input, ", input.ToString(), ", must be ",
                                                size(), " times the output, ", output.ToString())));
  }
  return StartCollective(CollectiveKind::kReduceScatter, input, output, op, 0);
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartAllGather(
    const Tensor& input, const Tensor& output, Stream&) {
  if (output.dtype() != input.dtype() || input.num_elements() * size() != output.num_elements()) {
    return Refuse(
        CollectiveKind::kAllGather, output.size_bytes(),
        absl::InvalidArgumentError(absl::StrCat("the output, ", output.ToString(), ", must be ",
                                                size(), " times the input, ", input.ToString())));
  }
  return StartCollective(CollectiveKind::kAllGather, input, output, ReduceOp::kSum, 0);
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartBroadcast(
    const Tensor& tensor, int root_group_rank, Stream&) {
  if (absl::Status status = CheckMember(root_group_rank); !status.ok()) {
    return Refuse(CollectiveKind::kBroadcast, tensor.size_bytes(), status);
  }
  return StartCollective(CollectiveKind::kBroadcast, tensor, tensor, ReduceOp::kSum,
                         root_group_rank);
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartAllToAll(
    const Tensor& input, const Tensor& output, Stream&) {
  if (output.dtype() != input.dtype() || input.num_elements() != output.num_elements() ||
      input.num_elements() % size() != 0) {
    return Refuse(CollectiveKind::kAllToAll, input.size_bytes(),
                  absl::InvalidArgumentError(
                      absl::StrCat("input, ", input.ToString(), ", and output, ", output.ToString(),
                                   ", must have one size, a multiple of ", size())));
  }
  return StartCollective(CollectiveKind::kAllToAll, input, output, ReduceOp::kSum, 0);
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartBarrier(Stream&) {
  return StartCollective(CollectiveKind::kBarrier, Tensor(), Tensor(), ReduceOp::kSum, 0);
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartCollective(
    CollectiveKind kind, const Tensor& input, const Tensor& output, ReduceOp op, int root) {
  const bool is_barrier = kind == CollectiveKind::kBarrier;
  const int64_t size_bytes = is_barrier ? 0 : std::max(input.size_bytes(), output.size_bytes());
  if (!is_barrier) {
    for (const Tensor* tensor : {&input, &output}) {
      if (absl::Status status = CheckTensor(*tensor, IsReduction(kind)); !status.ok()) {
        return Refuse(kind, size_bytes, status);
      }
    }
  }
  const int64_t unwaited =
      std::count_if(started_.begin(), started_.end(),
                    [](const Operation* each) { return each->is_collective(); });
  if (unwaited >= Board::kMaxPendingCollectives) {
    return Refuse(kind, size_bytes,
                  absl::ResourceExhaustedError(
                      absl::StrCat(unwaited, " collectives are started and not waited for")));
  }
  return Launch(std::make_unique<Collective>(membership_, kind, next_sequence_, next_collective_++,
                                             input, output, op, root));
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartSend(const Tensor& tensor,
                                                                               int to_group_rank,
                                                                               Stream&) {
  absl::Status status = CheckTensor(tensor, false);
  if (status.ok()) status = CheckMember(to_group_rank);
  if (status.ok() && to_group_rank == group_rank()) {
    status = absl::InvalidArgumentError("to itself");
  }
  if (!status.ok()) return Refuse(CollectiveKind::kSend, tensor.size_bytes(), status);
  return Launch(std::make_unique<SendOperation>(
      membership_, next_sequence_, next_send_[to_group_rank]++, to_group_rank, tensor));
}

absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::StartRecv(const Tensor& tensor,
                                                                               int from_group_rank,
                                                                               Stream&) {
  absl::Status status = CheckTensor(tensor, false);
  if (status.ok()) status = CheckMember(from_group_rank);
  if (status.ok() && from_group_rank == group_rank()) {
    status = absl::InvalidArgumentError("from itself");
  }
  if (!status.ok()) return Refuse(CollectiveKind::kRecv, tensor.size_bytes(), status);
  return Launch(std::make_unique<RecvOperation>(
      membership_, next_sequence_, next_recv_[from_group_rank]++, from_group_rank, tensor));
}

template <class Started>
absl::StatusOr<std::unique_ptr<CollectiveHandle>> GroupCommunicator::Launch(
    std::unique_ptr<Started> operation) {
  if (has_failed()) {
    SetPending(*operation);
    return Fail(*operation, failure());
  }
  if (absl::Status status = operation->Start(); !status.ok()) return Fail(*operation, status);
  ++next_sequence_;
  Count& count = counts_[static_cast<int>(operation->kind())];
  count.calls.fetch_add(1, std::memory_order_relaxed);
  count.bytes.fetch_add(operation->size_bytes(), std::memory_order_relaxed);
  started_.push_back(operation.get());
  return std::make_unique<Handle>(*this, std::move(operation));
}

absl::Status GroupCommunicator::CheckTensor(const Tensor& tensor, bool is_reduction) const {
  if (tensor.is_null() || tensor.device() != membership_.device || !tensor.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat("the tensor, ", tensor.ToString(),
                                                   ", must be contiguous on device ",
                                                   membership_.device->name()));
  }
  if (is_reduction && !CanReduce(tensor.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat(DTypeName(tensor.dtype()),
                                                   " is not reduced: float32, bfloat16, float16 "
                                                   "and int64 are"));
  }
  const int64_t offset = tensor.address() - reinterpret_cast<uint64_t>(membership_.own.base);
  if (tensor.size_bytes() > 0 &&
      (offset < 0 || offset > membership_.own.size_bytes - tensor.size_bytes())) {
    return absl::InvalidArgumentError(absl::StrCat("the tensor, ", tensor.ToString(),
                                                   ", is outside of the memory of device ",
                                                   membership_.device->name()));
  }
  return absl::OkStatus();
}

absl::Status GroupCommunicator::CheckMember(int group_rank) const {
  if (group_rank >= 0 && group_rank < size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no group rank ", group_rank, " in a group of ", size()));
}

absl::Status GroupCommunicator::Refuse(CollectiveKind kind, int64_t size_bytes,
                                       const absl::Status& why) const {
  return absl::Status(why.code(), absl::StrCat(CollectiveKindName(kind), " of ", size_bytes,
                                               " bytes in ", GroupName(group()), ", group rank ",
                                               group_rank(), " of ", size(), ": ", why.message()));
}

void GroupCommunicator::SetPending(const Operation& operation) {
  pending_bytes_.store(operation.size_bytes(), std::memory_order_relaxed);
  pending_.store(static_cast<uint64_t>(operation.kind()) << kKindShift | operation.sequence(),
                 std::memory_order_release);
}

absl::Status GroupCommunicator::Complete(Operation& operation) {
  const auto begin = std::chrono::steady_clock::now();
  SetPending(operation);
  absl::Status status;
  for (Waiter waiter(membership_.board ? &membership_.board->board : nullptr, size());;) {
    waiter.Arm();
    status = AdvanceAll();
    // What all members have completed stays so, even where one of them has aborted since.
    if (status.ok() && operation.done()) break;
    if (status.ok() && has_failed()) status = failure();
    if (status.ok() && waiter.is_slow()) status = CheckPeers(operation, waiter);
    if (!status.ok()) {
      status = Fail(operation, status);
      break;
    }
    waiter.Rest(operation.blocker());
  }
  started_.erase(std::find(started_.begin(), started_.end(), &operation));
  counts_[static_cast<int>(operation.kind())].wait_ns.fetch_add(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
          .count(),
      std::memory_order_relaxed);
  // What has failed stays, so that whoever asks later can name it.
  if (status.ok()) pending_.store(0, std::memory_order_release);
  return status;
}

absl::Status GroupCommunicator::AdvanceAll() {
  if (is_closed_) return absl::OkStatus();
  bool is_first_collective = true;
  for (Operation* each : started_) {
    if (each->done()) continue;
    // Collectives complete in order: a member that has finished one has finished those before.
    if (each->is_collective() && !std::exchange(is_first_collective, false)) continue;
    absl::StatusOr<bool> complete = each->Advance();
    if (!complete.ok()) return complete.status();
    if (!*complete) continue;
    each->set_done();
    if (each->is_collective()) is_first_collective = true;
  }
  return absl::OkStatus();
}

absl::Status GroupCommunicator::CheckPeers(const Operation& operation, const Waiter& waiter) const {
  std::vector<std::string> missing;
  const bool is_late = waiter.elapsed() >= group().timeout;
  for (int member = 0; member < size(); ++member) {
    if (member == group_rank()) continue;
    const Peer& peer = membership_.peers[member];
    if (peer.watch) {
      if (absl::Status notice = peer.watch->Notice(); !notice.ok()) return notice;
    }
    // First whether it is gone, then what it has done: it may have done its part and left. A link
    // tells by itself, after what was under way has arrived; one that does not is not believed for
    // ever.
    const bool has_ended = peer.watch != nullptr && peer.watch->IsGone();
    const bool is_gone = peer.is_mapped() ? membership_.board->board.has_left(member) || has_ended
                                          : has_ended && waiter.elapsed() >= kSilentLinkLimit;
    if (!operation.Misses(member)) continue;
    if (is_gone) return absl::UnavailableError(MemberName(group(), member) + " is gone");
    missing.push_back(MemberName(group(), member));
  }
  if (!is_late) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(group().timeout),
                                                  " for ", absl::StrJoin(missing, ", ")));
}

absl::Status GroupCommunicator::Fail(const Operation& operation, const absl::Status& why) {
  Abort(absl::IsUnavailable(why) ? Explain(why) : why);
  if (!std::exchange(is_closed_, true)) {
    for (Operation* each : started_) each->Cancel();
    AwaitQuiet();
  }
  const absl::Status first = failure();
  return absl::Status(
      first.code(),
      absl::StrCat(CollectiveKindName(operation.kind()), " number ", operation.sequence(), " of ",
                   operation.size_bytes(), " bytes in ", GroupName(group()), ", group rank ",
                   group_rank(), " of ", size(), ": ", first.message()));
}

absl::Status GroupCommunicator::Explain(const absl::Status& why) const {
  const auto limit = std::chrono::steady_clock::now() + kNoticeLimit;
  bool is_gone = false;
  while (true) {
    // A notice comes before the end of the same connection, so one more look after the end is
    // enough.
    const bool is_last = is_gone || std::chrono::steady_clock::now() >= limit;
    for (const Peer& peer : membership_.peers) {
      if (peer.watch == nullptr) continue;
      is_gone |= peer.watch->IsGone();
      if (absl::Status notice = peer.watch->Notice(); !notice.ok()) return notice;
    }
    if (is_last) return why;
    sched_yield();
  }
}

void GroupCommunicator::AwaitQuiet() {
  const auto limit = std::chrono::steady_clock::now() + kQuietLimit;
  for (int member = 0; member < size(); ++member) {
    if (!membership_.IsMappedPeer(member)) continue;
    const Peer& peer = membership_.peers[member];
    while (membership_.board->board.IsInside(member) && std::chrono::steady_clock::now() < limit) {
      if (peer.watch && peer.watch->IsGone()) break;
      sched_yield();
    }
  }
}

void GroupCommunicator::Abort(const absl::Status& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = reason.ok() ? absl::AbortedError("aborted") : reason;
    failed_.store(true);
  }
  const absl::Status told = failure();
  if (membership_.board) membership_.board->board.Abort(told);
  for (Peer& peer : membership_.peers) {
    if (peer.watch) peer.watch->Notify(told);
  }
}

bool GroupCommunicator::has_failed() const {
  return failed_.load() || (membership_.board && membership_.board->board.aborted());
}

absl::Status GroupCommunicator::failure() const {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
  }
  return membership_.board->board.abort_reason();
}

bool GroupCommunicator::pending(PendingOperation* operation) const {
  const uint64_t word = pending_.load(std::memory_order_acquire);
  if (word == 0) return false;
  operation->kind = static_cast<CollectiveKind>(word >> kKindShift);
  operation->sequence = word & ((uint64_t{1} << kKindShift) - 1);
  operation->size_bytes = pending_bytes_.load(std::memory_order_relaxed);
  return pending_.load() == word;
}

CommunicatorStats GroupCommunicator::stats() const {
  CommunicatorStats stats;
  for (int kind = 0; kind < kNumCollectiveKinds; ++kind) {
    stats[kind].calls = counts_[kind].calls.load(std::memory_order_relaxed);
    stats[kind].bytes = counts_[kind].bytes.load(std::memory_order_relaxed);
    stats[kind].wait_ns = counts_[kind].wait_ns.load(std::memory_order_relaxed);
  }
  return stats;
}

}  // namespace tessera
