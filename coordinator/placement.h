// Which worker gets which rank: a pure decision.
#ifndef TESSERA_COORDINATOR_PLACEMENT_H_
#define TESSERA_COORDINATOR_PLACEMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/mesh.h"

namespace tessera {

struct Candidate {
  std::string worker;   // "workers/w0"
  std::string host_id;  // equal: the same host
};

// workers[global_rank]. Hosts with most candidates first, then by host id; inside a host by worker
// name: so a tp group (adjacent ranks) lies inside one host wherever it fits, and the same idle
// workers always give the same placement. FAILED_PRECONDITION "needs N idle workers, M are idle".
absl::StatusOr<std::vector<std::string>> PlaceRanks(const plan::MeshSize& mesh,
                                                    const std::vector<Candidate>& idle);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_PLACEMENT_H_
