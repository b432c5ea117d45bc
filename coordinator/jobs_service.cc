#include "coordinator/jobs_service.h"

#include <functional>
#include <utility>

#include "coordinator/call_service.h"
#include "coordinator/generate_service.h"
#include "coordinator/job_plan.h"
#include "coordinator/watch_service.h"

namespace tessera {
namespace {

class JobsService final : public v1::Jobs::CallbackService {
 public:
  JobsService(Controller* controller, const Authorization* authorization)
      : controller_(controller), authorization_(authorization) {}

  grpc::ServerUnaryReactor* PlanTrainingJob(grpc::CallbackServerContext* context,
                                            const v1::PlanTrainingJobRequest* request,
                                            v1::PlanTrainingJobResponse* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::PlanTrainingJobResponse>(context, allowed, response);
    return Reply(context, PlanJob(*request, controller_->MostThreads()), response);
  }

  grpc::ServerUnaryReactor* CreateTrainingJob(grpc::CallbackServerContext* context,
                                              const v1::CreateTrainingJobRequest* request,
                                              v1::TrainingJob* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::TrainingJob>(context, allowed, response);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    controller_->CreateJob(*request, FinishWithJob(reactor, response));
    return reactor;
  }

  grpc::ServerUnaryReactor* VerifyTrainingJob(grpc::CallbackServerContext* context,
                                              const v1::VerifyTrainingJobRequest* request,
                                              v1::TrainingJob* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::TrainingJob>(context, allowed, response);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    controller_->VerifyJob(*request, FinishWithJob(reactor, response));
    return reactor;
  }

  grpc::ServerUnaryReactor* GetTrainingJob(grpc::CallbackServerContext* context,
                                           const v1::GetTrainingJobRequest* request,
                                           v1::TrainingJob* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::TrainingJob>(context, allowed, response);
    return Reply(context, controller_->GetJob(request->name()), response);
  }

  grpc::ServerUnaryReactor* ListTrainingJobs(grpc::CallbackServerContext* context,
                                             const v1::ListTrainingJobsRequest* request,
                                             v1::ListTrainingJobsResponse* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::ListTrainingJobsResponse>(context, allowed, response);
    return Reply(context, controller_->ListJobs(*request), response);
  }

  grpc::ServerWriteReactor<v1::WatchTrainingJobsResponse>* WatchTrainingJobs(
      grpc::CallbackServerContext* context, const v1::WatchTrainingJobsRequest* request) override {
    return NewWatchReactor(controller_, authorization_->CheckMayUse(IdentitiesOf(*context)),
                           *request);
  }

  grpc::ServerUnaryReactor* CancelTrainingJob(grpc::CallbackServerContext* context,
                                              const v1::CancelTrainingJobRequest* request,
                                              v1::TrainingJob* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::TrainingJob>(context, allowed, response);
    return Reply(context, controller_->CancelJob(request->name()), response);
  }

  grpc::ServerUnaryReactor* SuspendTrainingJob(grpc::CallbackServerContext* context,
                                               const v1::SuspendTrainingJobRequest* request,
                                               v1::TrainingJob* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::TrainingJob>(context, allowed, response);
    return Reply(context, controller_->SuspendJob(request->name()), response);
  }

  grpc::ServerUnaryReactor* ResumeTrainingJob(grpc::CallbackServerContext* context,
                                              const v1::ResumeTrainingJobRequest* request,
                                              v1::TrainingJob* response) override {
    absl::Status allowed = authorization_->CheckMayUse(IdentitiesOf(*context));
    if (!allowed.ok()) return Reply<v1::TrainingJob>(context, allowed, response);
    return Reply(context, controller_->ResumeJob(request->name()), response);
  }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override {
    return NewGenerateReactor(controller_, authorization_->CheckMayUse(IdentitiesOf(*context)),
                              *request);
  }

 private:
  // The reactor is gone once finished, also when the client has left meanwhile.
  static std::function<void(absl::StatusOr<v1::TrainingJob>)> FinishWithJob(
      grpc::ServerUnaryReactor* reactor, v1::TrainingJob* response) {
    return [reactor, response](absl::StatusOr<v1::TrainingJob> job) {
      const absl::Status status = job.status();
      if (status.ok()) *response = *std::move(job);
      reactor->Finish(ToGrpc(status));
    };
  }

  Controller* const controller_;
  const Authorization* const authorization_;
};

}  // namespace

std::unique_ptr<v1::Jobs::CallbackService> NewJobsService(Controller* controller,
                                                          const Authorization* authorization) {
  return std::make_unique<JobsService>(controller, authorization);
}

}  // namespace tessera
