// Resource names: "trainingJobs/{job}" and "workers/{worker}".
#ifndef TESSERA_PROTO_RPC_RESOURCE_NAME_H_
#define TESSERA_PROTO_RPC_RESOURCE_NAME_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// OK for [a-z]([-a-z0-9]{0,61}[a-z0-9])?, else INVALID_ARGUMENT under `field`.
absl::Status CheckResourceId(absl::string_view id, absl::string_view field);

std::string JobName(absl::string_view job_id);
std::string WorkerName(absl::string_view worker_id);

// The id in "trainingJobs/{job}"; INVALID_ARGUMENT under `field` for anything else.
absl::StatusOr<std::string> JobId(absl::string_view name, absl::string_view field);

}  // namespace tessera

#endif  // TESSERA_PROTO_RPC_RESOURCE_NAME_H_
