// What a training step asks of a rank's store of weights and gradients, in its order.
#ifndef TESSERA_PLAN_UNIT_BUFFERS_REPLAY_H_
#define TESSERA_PLAN_UNIT_BUFFERS_REPLAY_H_

#include <vector>

#include "plan/ledger.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {

// Most bytes that the store takes for a while in a step. actions: the rank's of
// ShortenedSchedule(request.schedule) (plan/ledger_schedule.h). job.zero_stage is 0 in a zero group
// of one.
//
// Evaluation and generating gather no more than a step's forwards, and reduce nothing.
BigSize PeakUnitBufferBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                            const StageActions& actions);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_UNIT_BUFFERS_REPLAY_H_
