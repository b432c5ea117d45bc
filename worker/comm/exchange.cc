#include "worker/comm/exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/comm/reduce.h"

namespace tessera {
namespace {

// Message channels that no collective uses; a packet takes two.
uint64_t Channel(uint64_t index) { return uint64_t{1} << 63 | 2 * index; }

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
  if (group_.IsLinkedPeer(to_)) {
    Posting posting;
    posting.kind = CollectiveKind::kSend;
    posting.dtype = tensor_.dtype();
    posting.num_elements = tensor_.num_elements();
    packet_ = std::make_unique<OutgoingPacket>();
    return GoneError(group_.spec, to_,
                     packet_->Start(*group_.peers[to_].link, Channel(index_), posting,
                                    Address(tensor_), tensor_.size_bytes()));
  }
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

absl::StatusOr<bool> SendOperation::Advance() {
  if (packet_ == nullptr) return !Misses(to_);
  absl::StatusOr<bool> complete = packet_->Test();
  if (!complete.ok()) return GoneError(group_.spec, to_, complete.status());
  return complete;
}

bool SendOperation::Misses(int member) const {
  if (member != to_) return false;
  return packet_ != nullptr || !group_.board->board.IsTaken(group_.self(), to_, index_);
}

RecvOperation::RecvOperation(Membership& group, int64_t sequence, uint64_t index, int from,
                             const Tensor& tensor)
    : Operation(CollectiveKind::kRecv, sequence, tensor.size_bytes()),
      group_(group),
      index_(index),
      from_(from),
      tensor_(tensor) {}

absl::Status RecvOperation::Start() {
  if (!group_.IsLinkedPeer(from_)) return absl::OkStatus();
  packet_ = std::make_unique<IncomingPacket>();
  return GoneError(group_.spec, from_,
                   packet_->Start(*group_.peers[from_].link, Channel(index_), *group_.device));
}

absl::Status RecvOperation::Agree(DType dtype, int64_t num_elements) const {
  if (dtype == tensor_.dtype() && num_elements == tensor_.num_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("members disagree: ", MemberName(group_.spec, from_), " sends ", num_elements,
                   " ", DTypeName(dtype), ", ", MemberName(group_.spec, group_.self()),
                   " receives ", tensor_.num_elements(), " ", DTypeName(tensor_.dtype())));
}

absl::StatusOr<bool> RecvOperation::AdvanceLinked() {
  if (!agreed_) {
    absl::StatusOr<const Posting*> posting = packet_->Find();
    if (!posting.ok()) return GoneError(group_.spec, from_, posting.status());
    if (*posting == nullptr) return false;
    absl::Status status = Agree((*posting)->dtype, (*posting)->num_elements);
    if (status.ok()) status = packet_->Expect(Address(tensor_), tensor_.size_bytes());
    if (!status.ok()) return GoneError(group_.spec, from_, status);
    agreed_ = true;
  }
  absl::StatusOr<bool> complete = packet_->Test();
  if (!complete.ok()) return GoneError(group_.spec, from_, complete.status());
  return complete;
}

absl::StatusOr<bool> RecvOperation::Advance() {
  if (packet_ != nullptr) return AdvanceLinked();
  Board& board = group_.board->board;
  const Message* message = board.FindMessage(from_, group_.self(), index_);
  if (message == nullptr) return false;
  absl::Status status = Agree(message->dtype, message->num_elements);
  if (!status.ok()) return status;
  const int64_t limit = group_.peers[from_].region.size_bytes - tensor_.size_bytes();
  if (message->offset < 0 || message->offset > limit) {
    return absl::InternalError(
        absl::StrCat(MemberName(group_.spec, from_), " posted a tensor outside of its memory"));
  }
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
  if (member != from_) return false;
  return packet_ != nullptr ||
         group_.board->board.FindMessage(from_, group_.self(), index_) == nullptr;
}

}  // namespace tessera
