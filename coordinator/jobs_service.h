// gRPC adapter of Jobs: converts, authorizes, streams watches. The logic is in Controller, that
// of plans in PlanJob.
#ifndef TESSERA_COORDINATOR_JOBS_SERVICE_H_
#define TESSERA_COORDINATOR_JOBS_SERVICE_H_

#include <memory>

#include "coordinator/authorization.h"
#include "coordinator/controller.h"
#include "proto/tessera/v1/jobs.grpc.pb.h"

namespace tessera {

// controller and authorization outlive the service.
std::unique_ptr<v1::Jobs::CallbackService> NewJobsService(Controller* controller,
                                                          const Authorization* authorization);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_JOBS_SERVICE_H_
