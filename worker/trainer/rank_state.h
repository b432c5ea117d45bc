// One rank's training state in the nvme tier: saved whole, restored to the same bits.
#ifndef TESSERA_WORKER_TRAINER_RANK_STATE_H_
#define TESSERA_WORKER_TRAINER_RANK_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/tessera/v1/saved_rank.pb.h"
#include "worker/offload/rank_offload.h"
#include "worker/zero/zero_optimizer.h"
#include "worker/zero/zero_store.h"

namespace tessera {

// Used by one thread. A step's values are the optimizer state of every unit in pieces (kind
// "optimizer": master, exp_avg, exp_avg_sq) and the weights that are offloaded to nvme (kind
// "parameters"); all else is in its record, v1::SavedRank. Errors of the tier have reason
// TIER_FAILED. store, optimizer and offload outlive it.
class RankState {
 public:
  RankState(ZeroStore& store, ZeroOptimizer& optimizer, RankOffload& offload, Stream& stream)
      : store_(store), optimizer_(optimizer), offload_(offload), stream_(stream) {}

  // Whether every step is committed.
  bool commits_steps() const { return offload_.options().commits_steps(); }

  // Of a job that commits its steps. Before a step: there is room for it.
  absl::Status CheckSpace();
  // The last commit has ended; on all ranks before the next Begin on any.
  absl::Status Settle();
  absl::Status Begin(int64_t step);
  // Where the unit's update has not written its state itself.
  absl::Status SaveUnit(int unit);
  // Ends the step beside what comes next.
  void StartCommit(const v1::SavedRank& record);

  // Of a job that does not: saves everything, and until that is committed keeps what the run went
  // on from. On an error nothing of the step stays.
  absl::Status SaveAll(const v1::SavedRank& record);
  // What SaveAll has saved is not needed.
  absl::Status Forget();

  // Weights, optimizer state and record of a saved step; other steps of the job are removed. All
  // ranks of the zero group call it. DATA_LOSS: it is not of this rank of this layout.
  absl::StatusOr<v1::SavedRank> Restore(int64_t step, const v1::MeshCoordinates& coordinates);
  // Nothing of the job's steps is of use.
  absl::Status RemoveAll();

 private:
  int num_units() const { return static_cast<int>(store_.units().size()); }
  bool is_on_nvme(int unit) const { return offload_.TierOfOptimizer(unit) == plan::Tier::kNvme; }
  int64_t piece_elements() const;
  // Of a step's values.
  int64_t StepBytes() const;
  absl::StatusOr<v1::SavedRank> ReadRecord(StateSaver& saver, int64_t step,
                                           const v1::MeshCoordinates& coordinates) const;
  absl::Status RestoreUnit(StateSaver& saver, int unit);

  ZeroStore& store_;
  ZeroOptimizer& optimizer_;
  RankOffload& offload_;
  Stream& stream_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_RANK_STATE_H_
