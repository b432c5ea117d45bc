// Memory of a rank's weights, gradients and optimizer state (worker/zero), and of what exchanges
// them (worker/trainer).
#ifndef TESSERA_PLAN_LEDGER_STATE_H_
#define TESSERA_PLAN_LEDGER_STATE_H_

#include <vector>

#include "plan/ledger.h"
#include "plan/ledger_bytes.h"
#include "plan/ledger_offload.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {

// What is held on the device from the first step to the last. job.zero_stage is 0 in a zero group
// of one.
LedgerBytes ModelStateBytes(const TrafficRequest& job, const std::vector<UnitSize>& units,
                            const std::vector<UnitOffload>& offloads);

// Of category workspace: below fp32 the largest piece of fp32 values through which weights are set,
// or gradients checked. Sizes as the arena's; 0 where there is none.
BigSize ConversionBytes(const LedgerRequest& request, const std::vector<UnitSize>& units);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_STATE_H_
