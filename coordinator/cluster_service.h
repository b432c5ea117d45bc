// gRPC adapter of Cluster. The logic is in Controller.
#ifndef TESSERA_COORDINATOR_CLUSTER_SERVICE_H_
#define TESSERA_COORDINATOR_CLUSTER_SERVICE_H_

#include <memory>

#include "coordinator/authorization.h"
#include "coordinator/controller.h"
#include "proto/tessera/v1/cluster.grpc.pb.h"

namespace tessera {

// controller and authorization outlive the service.
std::unique_ptr<v1::Cluster::CallbackService> NewClusterService(Controller* controller,
                                                                const Authorization* authorization);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_CLUSTER_SERVICE_H_
