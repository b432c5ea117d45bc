#include "worker/comm/exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/comm/reduce.h"

namespace tessera {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

char* Address(const Tensor& tensor) { return reinterpret_cast<char*>(tensor.address()); }

}  // namespace

SendOperation::SendOperation(Membership& group, int64_t sequence, uint64_t index, int to,
                             const Tensor& tensor)
    : Operation(CollectiveKind::kSend, sequence, tensor.size_bytes()),
      group_(group),
      index_(index),
      to_(to),
      tensor_(tensor) {}

absl::Status SendOperation::Start() {
  Message message;
  message.dtype = tensor_.dtype();
  message.num_elements = tensor_.num_elements();
  if (message.num_elements > 0) message.offset = Address(tensor_) - group_.own.base;
  if (group_.board->board.PostMessage(group_.self(), to_, index_, message)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("more than ", Board::kMaxPendingMessages,
                                                   " unfinished sends to ",
                                                   MemberName(group_.spec, to_)));
}

absl::StatusOr<bool> SendOperation::Advance() { return !Misses(to_); }

bool SendOperation::Misses(int member) const {
  return member == to_ && !group_.board->board.IsTaken(group_.self(), to_, index_);
}

RecvOperation::RecvOperation(Membership& group, int64_t sequence, uint64_t index, int from,
                             const Tensor& tensor)
    : Operation(CollectiveKind::kRecv, sequence, tensor.size_bytes()),
      group_(group),
      index_(index),
      from_(from),
      tensor_(tensor) {}

absl::Status RecvOperation::Start() { return absl::OkStatus(); }

absl::Status RecvOperation::Agree(const Message& message) const {
  if (message.dtype != tensor_.dtype() || message.num_elements != tensor_.num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "members disagree: ", MemberName(group_.spec, from_), " sends ", message.num_elements, " ",
        DTypeName(message.dtype), ", ", MemberName(group_.spec, group_.self()), " receives ",
        tensor_.num_elements(), " ", DTypeName(tensor_.dtype())));
  }
  const int64_t limit = group_.peers[from_].region.size_bytes - tensor_.size_bytes();
  if (message.offset < 0 || message.offset > limit) {
    return absl::InternalError(
        absl::StrCat(MemberName(group_.spec, from_), " posted a tensor outside of its memory"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RecvOperation::Advance() {
  Board& board = group_.board->board;
  const Message* message = board.FindMessage(from_, group_.self(), index_);
  if (message == nullptr) return false;
  if (absl::Status status = Agree(*message); !status.ok()) return status;
  const char* source = group_.peers[from_].region.base + message->offset;
  while (moved_ < tensor_.size_bytes()) {
    if (!board.Enter(group_.self())) return false;
    const int64_t piece_bytes = std::min(kPieceBytes, tensor_.size_bytes() - moved_);
    CopyBytes(source + moved_, Address(tensor_) + moved_, piece_bytes);
    board.Exit(group_.self());
    moved_ += piece_bytes;
  }
  board.TakeMessage(from_, group_.self(), index_);
  return true;
}

bool RecvOperation::Misses(int member) const {
  return member == from_ &&
         group_.board->board.FindMessage(from_, group_.self(), index_) == nullptr;
}

}  // namespace tessera
