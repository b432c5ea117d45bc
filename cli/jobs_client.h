// Calls of Jobs and Cluster as plain functions.
#ifndef TESSERA_CLI_JOBS_CLIENT_H_
#define TESSERA_CLI_JOBS_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "proto/tessera/v1/cluster.pb.h"
#include "proto/tessera/v1/jobs.pb.h"

namespace tessera {

// "demo" and "trainingJobs/demo" are the same job.
std::string FullJobName(const std::string& name);

// Not thread-safe.
class JobsClient {
 public:
  static absl::StatusOr<std::unique_ptr<JobsClient>> Create(const CommandContext& context);
  virtual ~JobsClient() = default;

  virtual absl::StatusOr<v1::PlanTrainingJobResponse> PlanJob(
      const v1::PlanTrainingJobRequest& request) = 0;
  virtual absl::StatusOr<v1::TrainingJob> CreateJob(
      const v1::CreateTrainingJobRequest& request) = 0;
  virtual absl::StatusOr<v1::TrainingJob> VerifyJob(
      const v1::VerifyTrainingJobRequest& request) = 0;
  virtual absl::StatusOr<v1::TrainingJob> GetJob(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<v1::TrainingJob>> ListJobs() = 0;
  virtual absl::StatusOr<v1::TrainingJob> CancelJob(const std::string& name) = 0;
  virtual absl::StatusOr<v1::TrainingJob> SuspendJob(const std::string& name) = 0;
  virtual absl::StatusOr<v1::TrainingJob> ResumeJob(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<v1::Worker>> ListWorkers() = 0;
  virtual absl::StatusOr<v1::Placement> GetPlacement(const std::string& job) = 0;

  // Calls on_change with the job as it is and after every change, until it returns false (then OK),
  // the job has ended (OK), the deadline has passed (DEADLINE_EXCEEDED) or SIGINT comes
  // (CANCELLED). A lost connection and a slow read are taken up again, for as long as the
  // coordinator was away less than half a minute.
  virtual absl::Status Watch(const std::string& name, absl::Time deadline,
                             const std::function<bool(const v1::TrainingJob&)>& on_change) = 0;
  // Calls on_piece with each piece until the end (OK), an error, or SIGINT (CANCELLED).
  virtual absl::Status Generate(
      const v1::GenerateRequest& request,
      const std::function<void(const v1::GenerateResponse&)>& on_piece) = 0;
};

}  // namespace tessera

#endif  // TESSERA_CLI_JOBS_CLIENT_H_
