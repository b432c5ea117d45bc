// Sum of losses and count of targets over ranks, exact in any order.
#ifndef TESSERA_WORKER_TRAINER_LOSS_TOTAL_H_
#define TESSERA_WORKER_TRAINER_LOSS_TOTAL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"

namespace tessera {

// Each sequence's losses are summed in fp64 in order of position, then held as a multiple of 2^-24
// nats (an error of 3e-8 a sequence). Sums of those are exact in int64, so neither ranks nor
// micro-batches change the total, and it overflows only beyond 5e11 nats.
class LossTotal {
 public:
  // losses (T) of one sequence, 0 where there is no target; valid_targets: of that sequence.
  void AddSequence(absl::Span<const float> losses, int64_t valid_targets);

  int64_t valid_targets() const { return valid_targets_; }
  // Mean per valid target; NaN where a loss was not finite. REQUIRES: valid_targets() > 0.
  double Mean() const;

 private:
  friend class LossReducer;
  int64_t fixed_point_ = 0;
  int64_t valid_targets_ = 0;
  int64_t not_finite_ = 0;  // sequences left out of fixed_point_
};

// Sums small integers over groups, one after the other. Used by one thread; groups and device
// outlive it.
class LossReducer {
 public:
  static absl::StatusOr<std::unique_ptr<LossReducer>> Create(std::vector<Communicator*> groups,
                                                             Device& device);

  // The total over all ranks of the groups, on every rank.
  absl::StatusOr<LossTotal> Reduce(const LossTotal& local, Stream& stream);
  absl::StatusOr<int64_t> Reduce(int64_t local, Stream& stream);

 private:
  LossReducer(std::vector<Communicator*> groups, Device& device)
      : groups_(std::move(groups)), device_(device) {}
  absl::Status ReduceValues(absl::Span<int64_t> values, Stream& stream);

  const std::vector<Communicator*> groups_;
  Device& device_;
  DeviceBuffer buffer_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_LOSS_TOTAL_H_
