// Optimizer state on the nvme tier: read, updated and written anew at every step.
#ifndef TESSERA_WORKER_OFFLOAD_NVME_OPTIMIZER_TIER_H_
#define TESSERA_WORKER_OFFLOAD_NVME_OPTIMIZER_TIER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "worker/offload/optimizer_tier.h"
#include "worker/offload/state_saver.h"
#include "worker/offload/tier_transfer.h"

namespace tessera {

// A piece is one value of the saver's step, and passes through one of its buffers: read ahead into
// it, visited in it, and written from it. Half of the buffers at most read ahead. saver outlives
// it.
class NvmeOptimizerTier : public OptimizerTier {
 public:
  explicit NvmeOptimizerTier(StateSaver& saver);

  absl::Status AddUnit(int unit, const std::string& name, int64_t first, int64_t elements) override;
  // REQUIRES: a step is committed. With kUpdate pieces that were visited belong to the step that
  // the saver writes.
  absl::Status StartPass() override;
  absl::Status Visit(int unit, Access access,
                     absl::FunctionRef<absl::Status(const StatePiece&)> visit) override;
  absl::Status FinishPass() override;
  absl::Status Read(StateArray array, int unit, int64_t begin, absl::Span<float> values) override;
  // Of a step that the saver writes and before which none is committed; ascending. FinishWrites
  // writes the last piece, and those of which nothing was written.
  absl::Status WriteMaster(int unit, int64_t begin, absl::Span<const float> values) override;
  absl::Status FinishWrites() override;

 private:
  struct Unit {
    std::string name;
    int64_t first = 0;     // in the unit's flat buffer
    int64_t elements = 0;  // from there
    int first_piece = 0;   // among pieces_
  };
  struct Piece {
    int unit = 0;
    int64_t begin = 0;  // after the unit's first
    int64_t count = 0;
  };
  struct ReadAhead {
    TierBuffer buffer;
    TierTransfer read;  // ends before its buffer
  };

  StatePiece ViewOf(const Piece& piece, const TierBuffer& buffer) const;
  TierTransfer StartReadOf(const Piece& piece, const TierBuffer& buffer);
  absl::Status WriteOf(const Piece& piece, TierBuffer buffer);
  // As many as may be; at least one, for which it may wait.
  void FillAhead();
  // Ends the reads of a pass that is not gone on with.
  void DropAhead();
  int PieceAt(int unit, int64_t begin) const;
  absl::Status FlushUpTo(int piece);

  StateSaver& saver_;
  const int64_t piece_elements_;
  const size_t most_ahead_;
  std::map<int, Unit> units_;
  std::vector<Piece> pieces_;    // of all units, in the order of a pass
  std::deque<ReadAhead> ahead_;  // of pieces_[next_], ...
  int next_ = 0;                 // piece to be visited
  // The piece that was read, or is being written, last.
  int open_ = -1;
  TierBuffer open_buffer_;
  int64_t open_step_ = -1;  // of a piece that was read
  int written_ = 0;         // pieces of WriteMaster so far
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_NVME_OPTIMIZER_TIER_H_
