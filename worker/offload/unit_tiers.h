// Which of a rank's units are in which tier, and the tiers that hold them.
#ifndef TESSERA_WORKER_OFFLOAD_UNIT_TIERS_H_
#define TESSERA_WORKER_OFFLOAD_UNIT_TIERS_H_

#include <vector>

#include "kernels/device.h"
#include "worker/offload/array_tier.h"
#include "worker/offload/optimizer_tier.h"

namespace tessera {

// Of one kind of state; all on the device where there is no tier.
template <typename Tier>
struct OffloadedKind {
  Tier* tier = nullptr;
  std::vector<bool> units;  // whether each is there; empty: none is

  bool has(int unit) const { return tier != nullptr && units[unit]; }
};

// Everything outlives the store and optimizer that use it. A unit whose gradients or parameters are
// offloaded has its optimizer state offloaded, too.
struct UnitTiers {
  Device* host = nullptr;  // on which offloaded state is updated; null where none is
  OffloadedKind<OptimizerTier> optimizer;
  OffloadedKind<ArrayTier> gradients;
  OffloadedKind<ArrayTier> parameters;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_UNIT_TIERS_H_
