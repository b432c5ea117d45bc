#include "worker/comm/collective.h"

#include <algorithm>
#include <array>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "worker/comm/reduce.h"

namespace tessera {
namespace {

// Of a collective's message channels, the third; a packet takes two.
constexpr uint64_t kChannelsPerCollective = 4;
constexpr uint64_t kResultChannel = 2;

char* Address(const Tensor& tensor) { return reinterpret_cast<char*>(tensor.address()); }

std::string Describe(const Posting& posting) {
  return absl::StrCat(
      CollectiveKindName(posting.kind), " of ", posting.num_elements, " ", DTypeName(posting.dtype),
      IsReduction(posting.kind) && posting.op == ReduceOp::kMax ? " (max)" : "",
      posting.kind == CollectiveKind::kBroadcast ? absl::StrCat(" from group rank ", posting.root)
                                                 : "");
}

}  // namespace

Collective::Collective(Membership& group, CollectiveKind kind, int64_t sequence, uint64_t index,
                       const Tensor& input, const Tensor& output, ReduceOp op, int root)
    : Operation(kind, sequence,
                input.is_null() ? 0 : std::max(input.size_bytes(), output.size_bytes())),
      group_(group),
      index_(index),
      input_(Address(input)),
      output_(Address(output)),
      element_bytes_(DTypeSizeBytes(input.dtype())),
      is_carried_(group.all_mapped() && input.size_bytes() <= Board::kCarriedBytes) {
  posting_.kind = kind;
  posting_.dtype = input.dtype();
  posting_.op = op;
  posting_.root = root;
  if (input.is_null()) return;
  posting_.num_elements = input.num_elements();
  if (posting_.num_elements == 0) return;
  posting_.input_offset = input_ - group.own.base;
  posting_.output_offset = output_ - group.own.base;
}

absl::Status Collective::Start() {
  if (group_.board) {
    const int64_t carried_bytes = is_carried_ ? posting_.num_elements * element_bytes_ : 0;
    group_.board->board.Post(group_.self(), index_, posting_,
                             absl::MakeConstSpan(input_, carried_bytes));
  }
  for (int member = 0; member < group_.size(); ++member) {
    if (!group_.IsLinkedPeer(member)) continue;
    linked_.resize(group_.size());
    linked_[member] = std::make_unique<Linked>();
    MessageLink& link = *group_.peers[member].link;
    const uint64_t channel = index_ * kChannelsPerCollective;
    const ElementRange range = OutgoingOf(group_.self(), member);
    absl::Status status = linked_[member]->incoming.Start(link, channel, *group_.device);
    if (status.ok()) {
      status = linked_[member]->outgoing.Start(link, channel, posting_,
                                               input_ + range.begin * element_bytes_,
                                               range.count * element_bytes_);
    }
    if (!status.ok()) return GoneError(group_.spec, member, status);
  }
  return absl::OkStatus();
}

Collective::Linked* Collective::linked(int member) const {
  return linked_.empty() ? nullptr : linked_[member].get();
}

absl::StatusOr<bool> Collective::Advance() {
  if (stage_ == Stage::kMeet) {
    absl::StatusOr<bool> all = Meet();
    if (!all.ok() || !*all) return all;
    stage_ = Stage::kMove;
    next_ = 0;
  }
  if (stage_ == Stage::kMove) {
    absl::StatusOr<bool> all = IsReduction(kind()) ? Reduce() : Copy();
    if (!all.ok() || !*all) return all;
    if (is_carried_) return true;
    if (group_.board) group_.board->board.Finish(group_.self(), index_);
    stage_ = Stage::kClose;
    next_ = 0;
  }
  return Close();
}

absl::StatusOr<const Posting*> Collective::Find(int member) const {
  if (Linked* link = linked(member)) return link->incoming.Find();
  return group_.board->board.Find(member, index_);
}

absl::StatusOr<bool> Collective::Meet() {
  for (; next_ < group_.size(); ++next_) {
    if (next_ == group_.self()) continue;
    absl::StatusOr<const Posting*> theirs = Find(next_);
    if (!theirs.ok()) return GoneError(group_.spec, next_, theirs.status());
    if (*theirs == nullptr) return false;
    absl::Status status = Agree(next_, **theirs);
    if (status.ok()) status = GoneError(group_.spec, next_, Expect(next_));
    if (!status.ok()) return status;
  }
  return true;
}

absl::Status Collective::Expect(int member) {
  Linked* link = linked(member);
  if (link == nullptr) return absl::OkStatus();
  const ElementRange outgoing = OutgoingOf(member, group_.self());
  const ElementRange landing =
      Landing(kind(), posting_.num_elements, group_.size(), posting_.root, member, group_.self());
  absl::Status status = link->incoming.Expect(
      IsReduction(kind()) ? nullptr : output_ + landing.begin * element_bytes_,
      outgoing.count * element_bytes_);
  if (status.ok() && kind() == CollectiveKind::kAllReduce) {
    // Sent only after that member has received all of this block, so that nobody reads it any more.
    const ElementRange theirs = OutgoingOf(member, member);
    status = RecvPieces(
        *group_.peers[member].link, index_ * kChannelsPerCollective + kResultChannel,
        output_ + theirs.begin * element_bytes_, theirs.count * element_bytes_, link->results);
  }
  return status;
}

absl::Status Collective::Agree(int member, const Posting& theirs) const {
  if (!theirs.Agrees(posting_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "members disagree: ", MemberName(group_.spec, group_.self()), " calls ", Describe(posting_),
        ", ", MemberName(group_.spec, member), " calls ", Describe(theirs)));
  }
  if (is_carried_ || !group_.peers[member].is_mapped()) return absl::OkStatus();
  // A peer's offsets are not trusted with this process's address space.
  const int64_t limit =
      group_.peers[member].region.size_bytes - posting_.num_elements * element_bytes_;
  if (theirs.input_offset < 0 || theirs.input_offset > limit || theirs.output_offset < 0 ||
      (kind() == CollectiveKind::kAllReduce && theirs.output_offset > limit)) {
    return absl::InternalError(
        absl::StrCat(MemberName(group_.spec, member), " posted a tensor outside of its memory"));
  }
  return absl::OkStatus();
}

const char* Collective::InputOf(int member) const {
  if (member == group_.self()) return input_;
  if (is_carried_) return group_.board->board.Carried(member, index_);
  return group_.peers[member].region.base + group_.board->board.Find(member, index_)->input_offset;
}

char* Collective::OutputOf(int member) const {
  if (member == group_.self()) return output_;
  return group_.peers[member].region.base + group_.board->board.Find(member, index_)->output_offset;
}

ElementRange Collective::OutgoingOf(int from, int to) const {
  return Outgoing(kind(), posting_.num_elements, group_.size(), posting_.root, from, to);
}

ElementRange Collective::Reduced() const {
  if (is_carried_ && kind() == CollectiveKind::kAllReduce) return {0, posting_.num_elements};
  return OutgoingOf(group_.self(), group_.self());
}

bool Collective::Enter() {
  return is_carried_ || !group_.board || group_.board->board.Enter(group_.self());
}

void Collective::Exit() {
  if (!is_carried_ && group_.board) group_.board->board.Exit(group_.self());
}

absl::StatusOr<bool> Collective::Reduce() {
  const ElementRange range = Reduced();
  const int64_t begin_bytes = range.begin * element_bytes_;
  const int64_t size_bytes = range.count * element_bytes_;
  absl::InlinedVector<const void*, 16> sources(group_.size());
  absl::InlinedVector<void*, 16> outputs;
  while (moved_ < size_bytes) {
    absl::StatusOr<bool> there = FindSummands(begin_bytes, absl::MakeSpan(sources));
    if (!there.ok() || !*there) return there;
    // all_reduce: the owner writes its block to every member.
    const bool is_all_reduce = kind() == CollectiveKind::kAllReduce;
    outputs.assign(1, output_ + (is_all_reduce ? begin_bytes : 0) + moved_);
    const bool writes_to_all = is_all_reduce && !is_carried_;
    for (int member = 0; writes_to_all && member < group_.size(); ++member) {
      if (group_.IsMappedPeer(member)) outputs.push_back(OutputOf(member) + begin_bytes + moved_);
    }
    if (!Enter()) return false;
    const int64_t piece_bytes = std::min(kPieceBytes, size_bytes - moved_);
    tessera::Reduce(posting_.dtype, posting_.op, sources, outputs, piece_bytes / element_bytes_);
    Exit();
    absl::Status status = HandOnPiece(static_cast<const char*>(outputs[0]), piece_bytes);
    if (!status.ok()) return status;
    moved_ += piece_bytes;
  }
  return true;
}

absl::StatusOr<bool> Collective::FindSummands(int64_t begin_bytes,
                                              absl::Span<const void*> sources) {
  for (int member = 0; member < group_.size(); ++member) {
    Linked* link = linked(member);
    if (link == nullptr) {
      sources[member] = InputOf(member) + begin_bytes + moved_;
      continue;
    }
    absl::StatusOr<const char*> piece = link->incoming.Piece(moved_);
    if (!piece.ok()) return GoneError(group_.spec, member, piece.status());
    if (*piece == nullptr) return false;
    sources[member] = *piece;
  }
  return true;
}

absl::Status Collective::HandOnPiece(const char* result, int64_t piece_bytes) {
  for (size_t member = 0; member < linked_.size(); ++member) {
    Linked* link = linked_[member].get();
    if (link == nullptr) continue;
    absl::Status status = link->incoming.Release(moved_);
    if (status.ok() && kind() == CollectiveKind::kAllReduce) {
      status =
          SendPieces(*group_.peers[member].link, index_ * kChannelsPerCollective + kResultChannel,
                     result, piece_bytes, link->results);
    }
    if (!status.ok()) return GoneError(group_.spec, static_cast<int>(member), status);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Collective::Copy() {
  // Each member starts with itself and goes round, so that not all read from the same one.
  for (; next_ < group_.size(); ++next_, moved_ = 0) {
    const int from = (group_.self() + next_) % group_.size();
    if (linked(from) != nullptr) continue;  // lands by itself
    const ElementRange outgoing = OutgoingOf(from, group_.self());
    const ElementRange landing =
        Landing(kind(), posting_.num_elements, group_.size(), posting_.root, from, group_.self());
    const int64_t size_bytes = outgoing.count * element_bytes_;
    while (moved_ < size_bytes) {
      if (!Enter()) return false;
      const int64_t piece_bytes = std::min(kPieceBytes, size_bytes - moved_);
      CopyBytes(InputOf(from) + outgoing.begin * element_bytes_ + moved_,
                output_ + landing.begin * element_bytes_ + moved_, piece_bytes);
      Exit();
      moved_ += piece_bytes;
    }
  }
  return true;
}

absl::StatusOr<bool> Collective::Close() {
  for (; next_ < group_.size(); ++next_) {
    if (group_.IsMappedPeer(next_) && !group_.board->board.IsFinished(next_, index_)) return false;
    Linked* link = linked(next_);
    if (link == nullptr) continue;
    absl::StatusOr<bool> complete = link->incoming.Test();
    if (complete.ok() && *complete) complete = link->results.Test();
    if (complete.ok() && *complete) complete = link->outgoing.Test();
    if (!complete.ok()) return GoneError(group_.spec, next_, complete.status());
    if (!*complete) return false;
  }
  return true;
}

bool Collective::Misses(int member) const {
  // A link that fails says so by itself; what it delivers may still be under way.
  if (linked(member) != nullptr) return member >= next_ || stage_ == Stage::kMove;
  if (!group_.IsMappedPeer(member)) return false;
  const Board& board = group_.board->board;
  if (stage_ == Stage::kMeet) return board.Find(member, index_) == nullptr;
  return !board.IsFinished(member, index_);
}

Transfer* Collective::blocker() const {
  if (linked_.empty()) return nullptr;
  if (stage_ == Stage::kMove) {
    for (const auto& link : linked_) {
      if (link != nullptr && link->incoming.blocker() != nullptr) return link->incoming.blocker();
    }
    return nullptr;
  }
  const Linked* link = next_ < group_.size() ? linked(next_) : nullptr;
  if (link == nullptr) return nullptr;
  if (Transfer* transfer = link->incoming.blocker()) return transfer;
  if (Transfer* transfer = link->results.blocker()) return transfer;
  return link->outgoing.blocker();
}

}  // namespace tessera
