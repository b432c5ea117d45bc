// Which micro-batches a stage holds at once, for the ledger: what of a schedule decides about
// memory.
#ifndef TESSERA_PLAN_LEDGER_SCHEDULE_H_
#define TESSERA_PLAN_LEDGER_SCHEDULE_H_

#include <vector>

#include "plan/pipeline_schedule.h"

namespace tessera::plan {

// A schedule of as few micro-batches as need be: in all others a stage does over and over what it
// does in these, and so holds no more, but for those that it keeps until the end
// (PeakMicroBatches).
ScheduleOptions ShortenedSchedule(const ScheduleOptions& options);

// Most micro-batches of each chunk in memory at once: from a micro-batch's first action to its
// last. actions: one rank's of ShortenedSchedule(options).
std::vector<int> PeakMicroBatches(const ScheduleOptions& options, const StageActions& actions);

// No more than those, without a schedule; as many but for interleaved_1f1b.
std::vector<int> LeastMicroBatches(const ScheduleOptions& options, int pp_rank);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_SCHEDULE_H_
