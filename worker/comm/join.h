// What every transport checks and says when a group is joined.
#ifndef TESSERA_WORKER_COMM_JOIN_H_
#define TESSERA_WORKER_COMM_JOIN_H_

#include <string>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace tessera {

// INVALID_ARGUMENT where the spec cannot be a group that the transport at `own_address` joins.
absl::Status CheckSpec(const GroupSpec& spec, const std::string& own_address);

// Identifies the group across processes: job uid, epoch and name.
std::string GroupKey(const GroupSpec& spec);

// The same status, with the group and this member named.
absl::Status JoinError(const GroupSpec& spec, const absl::Status& why);

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_JOIN_H_
