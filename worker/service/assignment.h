// Checks what the coordinator assigned, and turns it into what the data path wants.
#ifndef TESSERA_WORKER_SERVICE_ASSIGNMENT_H_
#define TESSERA_WORKER_SERVICE_ASSIGNMENT_H_

#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/mesh.h"
#include "proto/tessera/v1/assignment.pb.h"
#include "worker/comm/communicator.h"

namespace tessera {

// Specs in the order of plan::kGroupAxes: dp, cp, pp, tp, zero.
using GroupSpecs = std::array<GroupSpec, 5>;

// INTERNAL names the first thing that does not agree with the mesh's definition (plan/mesh.h) or
// with this worker: the coordinator is at fault, and nothing may be run.
absl::StatusOr<GroupSpecs> VerifyAssignment(const v1::RankAssignment& assignment,
                                            const std::string& own_worker);

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_ASSIGNMENT_H_
