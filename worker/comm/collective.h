// A started collective: the schedule, carried out against mapped memory and message links.
#ifndef TESSERA_WORKER_COMM_COLLECTIVE_H_
#define TESSERA_WORKER_COMM_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/tensor.h"
#include "worker/comm/membership.h"
#include "worker/comm/operation.h"
#include "worker/comm/packet.h"
#include "worker/comm/schedule.h"

namespace tessera {

// Three stages: all members have posted the same operation; data moves; everybody is done with
// everybody's memory. Where the postings carry the inputs, nobody touches another's memory and the
// third is not needed.
class Collective : public Operation {
 public:
  // index counts the group's collectives from 1. Barrier takes null tensors; broadcast and
  // all_reduce take one tensor as both. The membership outlives the operation.
  Collective(Membership& group, CollectiveKind kind, int64_t sequence, uint64_t index,
             const Tensor& input, const Tensor& output, ReduceOp op, int root);

  // Tells the others. Called once, before Advance.
  absl::Status Start();
  absl::StatusOr<bool> Advance() override;
  bool Misses(int member) const override;
  Transfer* blocker() const override;
  void Cancel() override { linked_.clear(); }

 private:
  // What goes to and comes from one member over its message link.
  struct Linked {
    OutgoingPacket outgoing;
    IncomingPacket incoming;
    TransferList results;  // all_reduce: of the own block to it, of its block from it
  };

  enum class Stage : uint8_t { kMeet, kMove, kClose };

  Linked* linked(int member) const;
  absl::StatusOr<const Posting*> Find(int member) const;
  absl::StatusOr<bool> Meet();
  absl::Status Expect(int member);
  absl::Status Agree(int member, const Posting& theirs) const;
  absl::StatusOr<bool> Reduce();
  // Fills in where each member's summands of the piece at moved_ are; false: not all are there.
  absl::StatusOr<bool> FindSummands(int64_t begin_bytes, absl::Span<const void*> sources);
  absl::Status HandOnPiece(const char* result, int64_t piece_bytes);
  absl::StatusOr<bool> Copy();
  absl::StatusOr<bool> Close();
  // What of the block this member owns it is to reduce: all_reduce of carried inputs, everything.
  ElementRange Reduced() const;
  bool Enter();
  void Exit();
  // Where `member` has its input and output, as this process sees them.
  const char* InputOf(int member) const;
  char* OutputOf(int member) const;
  ElementRange OutgoingOf(int from, int to) const;

  Membership& group_;
  const uint64_t index_;
  Posting posting_;
  char* const input_;
  char* const output_;
  const int64_t element_bytes_;
  const bool is_carried_;
  Stage stage_ = Stage::kMeet;
  int next_ = 0;       // first member not yet seen in this stage
  int64_t moved_ = 0;  // bytes done: of the own block, or of what comes from member next_
  std::vector<std::unique_ptr<Linked>> linked_;  // by group rank; empty where all are mapped
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_COLLECTIVE_H_
