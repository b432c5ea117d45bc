#include "cli/jobs_client.h"

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/exit_code.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/status.h"
#include "proto/tessera/v1/cluster.grpc.pb.h"
#include "proto/tessera/v1/jobs.grpc.pb.h"

namespace tessera {
namespace {

// Before a job is created a worker may have to read the whole data file.
constexpr absl::Duration kDataCheckTime = absl::Seconds(90);

// Set by the handler; SIGINT may arrive on any of gRPC's threads.
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// While alive, SIGINT cancels the registered call instead of ending the process. One at a time.
class InterruptGuard {
 public:
  InterruptGuard() {
    g_interrupted = false;
    struct sigaction action = {};
    action.sa_handler = [](int) { g_interrupted = true; };
    sigaction(SIGINT, &action, &previous_);
    thread_ = std::thread([this] {
      std::unique_lock<std::mutex> lock(mutex_);
      while (!wake_.wait_for(lock, std::chrono::milliseconds(50), [this] { return done_; })) {
        if (g_interrupted && context_ != nullptr) context_->TryCancel();
      }
    });
  }
  ~InterruptGuard() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
    sigaction(SIGINT, &previous_, nullptr);
  }
  // Null: no call is in progress.
  void Register(grpc::ClientContext* context) {
    std::lock_guard<std::mutex> lock(mutex_);
    context_ = context;
  }
  bool interrupted() const { return g_interrupted; }

 private:
  struct sigaction previous_ = {};
  std::mutex mutex_;
  std::condition_variable wake_;
  grpc::ClientContext* context_ = nullptr;  // guarded by mutex_
  bool done_ = false;                       // guarded by mutex_
  std::thread thread_;
};

class Client final : public JobsClient {
 public:
  Client(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout)
      : jobs_(v1::Jobs::NewStub(channel)),
        cluster_(v1::Cluster::NewStub(channel)),
        timeout_(timeout) {}

  absl::StatusOr<v1::PlanTrainingJobResponse> PlanJob(
      const v1::PlanTrainingJobRequest& request) override {
    return Call<v1::PlanTrainingJobResponse>(
        [&](grpc::ClientContext* context, v1::PlanTrainingJobResponse* response) {
          return jobs_->PlanTrainingJob(context, request, response);
        });
  }

  absl::StatusOr<v1::TrainingJob> CreateJob(const v1::CreateTrainingJobRequest& request) override {
    return Call<v1::TrainingJob>(
        [&](grpc::ClientContext* context, v1::TrainingJob* job) {
          return jobs_->CreateTrainingJob(context, request, job);
        },
        std::max(timeout_, kDataCheckTime));
  }

  absl::StatusOr<v1::TrainingJob> VerifyJob(const v1::VerifyTrainingJobRequest& request) override {
    return Call<v1::TrainingJob>(
        [&](grpc::ClientContext* context, v1::TrainingJob* job) {
          return jobs_->VerifyTrainingJob(context, request, job);
        },
        std::max(timeout_, kDataCheckTime));
  }

  absl::StatusOr<v1::TrainingJob> GetJob(const std::string& name) override {
    v1::GetTrainingJobRequest request;
    request.set_name(FullJobName(name));
    return Call<v1::TrainingJob>([&](grpc::ClientContext* context, v1::TrainingJob* job) {
      return jobs_->GetTrainingJob(context, request, job);
    });
  }

  absl::StatusOr<std::vector<v1::TrainingJob>> ListJobs() override {
    std::vector<v1::TrainingJob> jobs;
    v1::ListTrainingJobsRequest request;
    do {
      auto page = Call<v1::ListTrainingJobsResponse>(
          [&](grpc::ClientContext* context, v1::ListTrainingJobsResponse* response) {
            return jobs_->ListTrainingJobs(context, request, response);
          });
      if (!page.ok()) return page.status();
      jobs.insert(jobs.end(), page->training_jobs().begin(), page->training_jobs().end());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return jobs;
  }

  absl::StatusOr<v1::TrainingJob> CancelJob(const std::string& name) override {
    v1::CancelTrainingJobRequest request;
    request.set_name(FullJobName(name));
    return Call<v1::TrainingJob>([&](grpc::ClientContext* context, v1::TrainingJob* job) {
      return jobs_->CancelTrainingJob(context, request, job);
    });
  }

  absl::StatusOr<v1::TrainingJob> SuspendJob(const std::string& name) override {
    v1::SuspendTrainingJobRequest request;
    request.set_name(FullJobName(name));
    return Call<v1::TrainingJob>([&](grpc::ClientContext* context, v1::TrainingJob* job) {
      return jobs_->SuspendTrainingJob(context, request, job);
    });
  }

  absl::StatusOr<v1::TrainingJob> ResumeJob(const std::string& name) override {
    v1::ResumeTrainingJobRequest request;
    request.set_name(FullJobName(name));
    return Call<v1::TrainingJob>([&](grpc::ClientContext* context, v1::TrainingJob* job) {
      return jobs_->ResumeTrainingJob(context, request, job);
    });
  }

  absl::StatusOr<std::vector<v1::Worker>> ListWorkers() override {
    std::vector<v1::Worker> workers;
    v1::ListWorkersRequest request;
    do {
      auto page = Call<v1::ListWorkersResponse>(
          [&](grpc::ClientContext* context, v1::ListWorkersResponse* response) {
            return cluster_->ListWorkers(context, request, response);
          });
      if (!page.ok()) return page.status();
      workers.insert(workers.end(), page->workers().begin(), page->workers().end());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return workers;
  }

  absl::StatusOr<v1::Placement> GetPlacement(const std::string& job) override {
    v1::GetPlacementRequest request;
    request.set_training_job(FullJobName(job));
    return Call<v1::Placement>([&](grpc::ClientContext* context, v1::Placement* placement) {
      return cluster_->GetPlacement(context, request, placement);
    });
  }

  absl::Status Watch(const std::string& name, absl::Time deadline,
                     const std::function<bool(const v1::TrainingJob&)>& on_change) override {
    InterruptGuard interrupt;
    v1::WatchTrainingJobsRequest request;
    request.set_name(FullJobName(name));
    absl::Time last_contact = absl::Now();
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + absl::Hours(24))));
      interrupt.Register(&context);
      auto reader = jobs_->WatchTrainingJobs(&context, request);
      v1::WatchTrainingJobsResponse response;
      bool wanted = true;
      while (wanted && reader->Read(&response)) {
        last_contact = absl::Now();
        request.set_revision(response.revision());
        wanted = on_change(response.training_job());
      }
      if (!wanted) context.TryCancel();
      absl::Status status = FromGrpc(reader->Finish());
      interrupt.Register(nullptr);
      if (!wanted || status.ok()) return absl::OkStatus();
      if (interrupt.interrupted()) return absl::CancelledError("interrupted");
      if (absl::Now() >= deadline) {
        return WithReason(absl::DeadlineExceededError(absl::StrCat(request.name(), ": timed out")),
                          kWaitTimedOut);
      }
      if (status.code() == absl::StatusCode::kOutOfRange) {
        request.set_revision(0);  // start from the current state
      } else if (status.code() == absl::StatusCode::kUnavailable) {
        // Never reached it, or it has been away for long: give up.
        if (request.revision() == 0 || absl::Now() - last_contact > absl::Seconds(30)) {
          return status;
        }
        absl::SleepFor(absl::Milliseconds(200));
      } else if (status.code() != absl::StatusCode::kResourceExhausted) {
        return status;
      }
    }
  }

  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_piece) override {
    InterruptGuard interrupt;
    grpc::ClientContext context;
    interrupt.Register(&context);
    auto reader = jobs_->Generate(&context, request);
    v1::GenerateResponse response;
    bool has_begun = false;
    for (; reader->Read(&response); has_begun = true) on_piece(response);
    absl::Status status = FromGrpc(reader->Finish());
    interrupt.Register(nullptr);
    if (!status.ok() && interrupt.interrupted()) return absl::CancelledError("interrupted");
    if (has_begun && absl::IsUnavailable(status) && ReasonOf(status).empty()) {
      return WithReason(status, kConnectionLost);
    }
    return status;
  }

 private:
  template <typename Response, typename Method>
  absl::StatusOr<Response> Call(const Method& method,
                                absl::Duration timeout = absl::ZeroDuration()) {
    grpc::ClientContext context;
    SetDeadline(context, timeout == absl::ZeroDuration() ? timeout_ : timeout);
    Response response;
    absl::Status status = FromGrpc(method(&context, &response));
    if (!status.ok()) return status;
    return response;
  }

  const std::unique_ptr<v1::Jobs::Stub> jobs_;
  const std::unique_ptr<v1::Cluster::Stub> cluster_;
  const absl::Duration timeout_;
};

}  // namespace

std::string FullJobName(const std::string& name) {
  return absl::StrContains(name, '/') ? name : absl::StrCat("trainingJobs/", name);
}

absl::StatusOr<std::unique_ptr<JobsClient>> JobsClient::Create(const CommandContext& context) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(context.connection);
  if (!channel.ok()) return channel.status();
  return std::make_unique<Client>(*channel, context.timeout);
}

}  // namespace tessera
