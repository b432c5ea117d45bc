#include "worker/comm/collective.h"

#include <algorithm>
#include <array>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "worker/comm/reduce.h"

namespace tessera {
namespace {

// Memory is entered for this much at a time, so that an abort is seen between pieces.
constexpr int64_t kPieceBytes = 1 << 20;

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
      element_bytes_(DTypeSizeBytes(input.dtype())) {
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
  if (group_.board) group_.board->board.Post(group_.self(), index_, posting_);
  return absl::OkStatus();
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
    if (group_.board) group_.board->board.Finish(group_.self(), index_);
    stage_ = Stage::kClose;
    next_ = 0;
  }
  return Close();
}

absl::StatusOr<bool> Collective::Meet() {
  for (; next_ < group_.size(); ++next_) {
    if (!group_.IsMappedPeer(next_)) continue;
    const Posting* theirs = group_.board->board.Find(next_, index_);
    if (theirs == nullptr) return false;
    if (absl::Status status = Agree(next_, *theirs); !status.ok()) return status;
  }
  return true;
}

absl::Status Collective::Agree(int member, const Posting& theirs) const {
  if (!theirs.Agrees(posting_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "members disagree: ", MemberName(group_.spec, group_.self()), " calls ", Describe(posting_),
        ", ", MemberName(group_.spec, member), " calls ", Describe(theirs)));
  }
  if (!group_.peers[member].is_mapped()) return absl::OkStatus();
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
  return group_.peers[member].region.base + group_.board->board.Find(member, index_)->input_offset;
}

char* Collective::OutputOf(int member) const {
  if (member == group_.self()) return output_;
  return group_.peers[member].region.base + group_.board->board.Find(member, index_)->output_offset;
}

ElementRange Collective::OutgoingOf(int from, int to) const {
  return Outgoing(kind(), posting_.num_elements, group_.size(), posting_.root, from, to);
}

absl::StatusOr<bool> Collective::Reduce() {
  const ElementRange own = OutgoingOf(group_.self(), group_.self());
  const int64_t begin_bytes = own.begin * element_bytes_;
  const int64_t size_bytes = own.count * element_bytes_;
  absl::InlinedVector<const void*, 16> sources(group_.size());
  absl::InlinedVector<void*, 16> outputs;
  while (moved_ < size_bytes) {
    if (group_.board && !group_.board->board.Enter(group_.self())) return false;
    const int64_t piece_bytes = std::min(kPieceBytes, size_bytes - moved_);
    outputs.clear();
    for (int member = 0; member < group_.size(); ++member) {
      sources[member] = InputOf(member) + begin_bytes + moved_;
      // all_reduce: the owner writes its block to every member.
      if (kind() == CollectiveKind::kAllReduce) {
        outputs.push_back(OutputOf(member) + begin_bytes + moved_);
      }
    }
    if (kind() == CollectiveKind::kReduceScatter) outputs.push_back(output_ + moved_);
    tessera::Reduce(posting_.dtype, posting_.op, sources, outputs, piece_bytes / element_bytes_);
    if (group_.board) group_.board->board.Exit(group_.self());
    moved_ += piece_bytes;
  }
  return true;
}

absl::StatusOr<bool> Collective::Copy() {
  // Each member starts with itself and goes round, so that not all read from the same one.
  for (; next_ < group_.size(); ++next_, moved_ = 0) {
    const int from = (group_.self() + next_) % group_.size();
    const ElementRange outgoing = OutgoingOf(from, group_.self());
    const ElementRange landing =
        Landing(kind(), posting_.num_elements, group_.size(), posting_.root, from, group_.self());
    const int64_t size_bytes = outgoing.count * element_bytes_;
    while (moved_ < size_bytes) {
      if (group_.board && !group_.board->board.Enter(group_.self())) return false;
      const int64_t piece_bytes = std::min(kPieceBytes, size_bytes - moved_);
      CopyBytes(InputOf(from) + outgoing.begin * element_bytes_ + moved_,
                output_ + landing.begin * element_bytes_ + moved_, piece_bytes);
      if (group_.board) group_.board->board.Exit(group_.self());
      moved_ += piece_bytes;
    }
  }
  return true;
}

absl::StatusOr<bool> Collective::Close() {
  for (; next_ < group_.size(); ++next_) {
    if (group_.IsMappedPeer(next_) && !group_.board->board.IsFinished(next_, index_)) return false;
  }
  return true;
}

bool Collective::Misses(int member) const {
  if (!group_.IsMappedPeer(member)) return false;
  const Board& board = group_.board->board;
  if (stage_ == Stage::kMeet) return board.Find(member, index_) == nullptr;
  return !board.IsFinished(member, index_);
}

}  // namespace tessera
