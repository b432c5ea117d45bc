// gRPC adapter of WorkerAttach: one stream, one WorkerSession. The logic is in Controller.
#ifndef TESSERA_COORDINATOR_ATTACH_SERVICE_H_
#define TESSERA_COORDINATOR_ATTACH_SERVICE_H_

#include <memory>

#include "coordinator/authorization.h"
#include "coordinator/controller.h"
#include "proto/tessera/v1/attach.grpc.pb.h"

namespace tessera {

// controller and authorization outlive the service.
std::unique_ptr<v1::WorkerAttach::CallbackService> NewAttachService(
    Controller* controller, const Authorization* authorization);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_ATTACH_SERVICE_H_
