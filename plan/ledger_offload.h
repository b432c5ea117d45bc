// Memory of what is kept outside of a rank's device (worker/offload), and of what comes and goes on
// the device for it.
#ifndef TESSERA_PLAN_LEDGER_OFFLOAD_H_
#define TESSERA_PLAN_LEDGER_OFFLOAD_H_

#include <vector>

#include "plan/ledger.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {

// Which state of one unit is not on the device.
struct UnitOffload {
  bool optimizer = false, gradients = false, parameters = false;
};

// Of each unit.
std::vector<UnitOffload> UnitOffloads(const LedgerRequest& request,
                                      const std::vector<UnitSize>& units);

// Elements of a unit whose optimizer state, and weights, a rank holds. job.zero_stage is 0 in a
// zero group of one.
BigSize HeldStateElements(const TrafficRequest& job, const UnitSize& unit);
BigSize HeldParameterElements(const TrafficRequest& job, const UnitSize& unit);

// On the device for the update of one unit at a time, the most, as the arena counts it: its reduced
// gradients and its weights, fetched from their tiers.
BigSize PeakUpdateBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                        const std::vector<UnitOffload>& offloads);

// In the pool of host memory: state and buffers, without activations.
BigSize HostStateBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                       const std::vector<UnitOffload>& offloads);
// On disk.
BigSize NvmeBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                  const std::vector<UnitOffload>& offloads);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_OFFLOAD_H_
