// Second half of a pipeline schedule: given what each stage computes, which messages go where.
#ifndef TESSERA_PLAN_PIPELINE_MESSAGES_H_
#define TESSERA_PLAN_PIPELINE_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "plan/pipeline_schedule.h"

namespace tessera::plan {

enum class SendTime : uint8_t {
  kAtOnce,    // right after the computation
  kAfterRun,  // after the last of a run of computations of one kind
};

// compute: one list of computations per pp_rank, the same ones in each direction on every rank.
// Returns the lists with sends and receives. Each receive stands just before the computation that
// needs it, together with the receives of that channel that come before it: the peer sends those
// earlier anyway, so receiving them early waits for nothing more.
std::vector<StageActions> AddMessages(const std::vector<StageActions>& compute, int chunks,
                                      SendTime send_time);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_PIPELINE_MESSAGES_H_
