// A started collective: the schedule, carried out against mapped memory and message links.
#ifndef TESSERA_WORKER_COMM_COLLECTIVE_H_
#define TESSERA_WORKER_COMM_COLLECTIVE_H_

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"
#include "worker/comm/membership.h"
#include "worker/comm/operation.h"
#include "worker/comm/schedule.h"

namespace tessera {

// Three stages: all members have posted the same operation; data moves; everybody is done with
// everybody's memory.
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

 private:
  enum class Stage : uint8_t { kMeet, kMove, kClose };

  absl::StatusOr<bool> Meet();
  absl::Status Agree(int member, const Posting& theirs) const;
  absl::StatusOr<bool> Reduce();
  absl::StatusOr<bool> Copy();
  absl::StatusOr<bool> Close();
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
  Stage stage_ = Stage::kMeet;
  int next_ = 0;       // first member not yet seen in this stage
  int64_t moved_ = 0;  // bytes done: of the own block, or of what comes from member next_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_COLLECTIVE_H_
