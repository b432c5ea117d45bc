#include "coordinator/cluster_service.h"

#include "coordinator/call_service.h"

namespace tessera {
namespace {

class ClusterService final : public v1::Cluster::CallbackService {
 public:
  ClusterService(Controller* controller, const Authorization* authorization)
      : controller_(controller), authorization_(authorization) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::ListWorkersResponse>(context, allowed, response);
    return Reply(context, controller_->ListWorkers(*request), response);
  }

  grpc::ServerUnaryReactor* GetPlacement(grpc::CallbackServerContext* context,
                                         const v1::GetPlacementRequest* request,
                                         v1::Placement* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::Placement>(context, allowed, response);
    return Reply(context, controller_->GetPlacement(request->training_job()), response);
  }

 private:
  Controller* const controller_;
  const Authorization* const authorization_;
};

}  // namespace

std::unique_ptr<v1::Cluster::CallbackService> NewClusterService(
    Controller* controller, const Authorization* authorization) {
  return std::make_unique<ClusterService>(controller, authorization);
}

}  // namespace tessera
