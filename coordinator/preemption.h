// Which running jobs make room for one of higher priority: a pure decision.
#ifndef TESSERA_COORDINATOR_PREEMPTION_H_
#define TESSERA_COORDINATOR_PREEMPTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/placement.h"
#include "plan/mesh.h"

namespace tessera {

// A job that may be suspended.
struct PreemptibleJob {
  std::string name;  // "trainingJobs/{job}"
  int priority = 0;
  int64_t create_time_ns = 0;
  std::vector<Candidate> workers;  // as they are once it is suspended
};

// Indexes of those to suspend, ascending, so that their workers together with the free ones are
// enough (PlaceRanks): the highest priority among them is as low as it can be, of such choices the
// one with fewest jobs, then that of lower priorities, then of younger jobs. Empty: the free ones
// are enough. Nothing: not even all are. Beyond kMaxChoices choices the rest is not looked at: then
// none of those taken can be left out, but fewer might have done.
inline constexpr int kMaxChoices = 2000;
std::optional<std::vector<size_t>> ChoosePreempted(const plan::MeshSize& mesh,
                                                   const std::vector<TierBytes>& needs,
                                                   const std::vector<Candidate>& free,
                                                   const std::vector<PreemptibleJob>& jobs);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_PREEMPTION_H_
