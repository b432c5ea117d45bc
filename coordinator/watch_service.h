// One WatchTrainingJobs call: reads the event log at its reader's pace.
#ifndef TESSERA_COORDINATOR_WATCH_SERVICE_H_
#define TESSERA_COORDINATOR_WATCH_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "coordinator/controller.h"
#include "proto/tessera/v1/jobs.pb.h"

namespace tessera {

// Owned by gRPC; deletes itself. allowed: an error ends the call at once. At most one event is in
// flight, so a slow reader holds no memory; when the log has moved past it, the call ends with
// RESOURCE_EXHAUSTED.
grpc::ServerWriteReactor<v1::WatchTrainingJobsResponse>* NewWatchReactor(
    Controller* controller, const absl::Status& allowed,
    const v1::WatchTrainingJobsRequest& request);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_WATCH_SERVICE_H_
