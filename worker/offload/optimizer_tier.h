// Optimizer state outside of the device: of each unit the fp32 master weights and AdamW's moments.
#ifndef TESSERA_WORKER_OFFLOAD_OPTIMIZER_TIER_H_
#define TESSERA_WORKER_OFFLOAD_OPTIMIZER_TIER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace tessera {

// What there is of each parameter.
enum class StateArray : uint8_t { kMaster, kExpAvg, kExpAvgSq };
inline constexpr int kNumStateArrays = 3;

enum class Access : uint8_t { kRead, kUpdate };

// Elements [begin, begin + count) of what the rank holds of a unit.
struct StatePiece {
  int64_t begin = 0;
  int64_t count = 0;
  Tensor master, exp_avg, exp_avg_sq;  // fp32 (count), of the host's device

  const Tensor& of(StateArray array) const {
    return array == StateArray::kMaster ? master
                                        : (array == StateArray::kExpAvg ? exp_avg : exp_avg_sq);
  }
};

// Used by one thread.
class OptimizerTier {
 public:
  virtual ~OptimizerTier() = default;

  // Takes what `elements` of a unit need, which lie in its flat buffer from `first` on; all 0.
  // Units ascend. RESOURCE_EXHAUSTED from the pool.
  virtual absl::Status AddUnit(int unit, const std::string& name, int64_t first,
                               int64_t elements) = 0;

  // A pass visits every unit once, in the order in which they were added; from here on pieces are
  // read ahead. A pass that has been started and not yet visited anything is left as it is.
  virtual absl::Status StartPass() = 0;
  // Calls visit for all pieces of the unit, ascending. With kUpdate what it changes is kept.
  virtual absl::Status Visit(int unit, Access access,
                             absl::FunctionRef<absl::Status(const StatePiece&)> visit) = 0;
  // What was changed is on its way.
  virtual absl::Status FinishPass() = 0;

  // Elements from `begin` on, between passes. REQUIRES: in range.
  virtual absl::Status Read(StateArray array, int unit, int64_t begin,
                            absl::Span<float> values) = 0;
  // Sets master weights between passes; FinishWrites comes last. FAILED_PRECONDITION: the tier
  // cannot set these now.
  virtual absl::Status WriteMaster(int unit, int64_t begin, absl::Span<const float> values) = 0;
  virtual absl::Status FinishWrites() = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_OPTIMIZER_TIER_H_
