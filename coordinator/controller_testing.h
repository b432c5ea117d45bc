// A controller with a hand-moved clock and workers that are scripts, for tests.
#ifndef TESSERA_COORDINATOR_CONTROLLER_TESTING_H_
#define TESSERA_COORDINATOR_CONTROLLER_TESTING_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/controller.h"
#include "proto/rpc/status.h"

namespace tessera {

class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(1700000000) + elapsed; }
  absl::Duration Monotonic() const override { return elapsed; }
  absl::Duration elapsed;
};

class FakeSession : public WorkerSession {
 public:
  void Send(const v1::CoordinatorMessage& message) override { sent.push_back(message); }
  void Close(const absl::Status& status) override { closed = status; }
  // The last message of a kind; an empty one if there is none.
  v1::CoordinatorMessage Last(v1::CoordinatorMessage::MessageCase kind) const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
      if (it->message_case() == kind) return *it;
    }
    return {};
  }
  std::vector<v1::CoordinatorMessage> sent;
  absl::Status closed;
};

inline v1::CreateTrainingJobRequest Request(const std::string& id, int dp) {
  v1::CreateTrainingJobRequest request;
  request.set_training_job_id(id);
  v1::TrainingJobSpec& spec = *request.mutable_training_job()->mutable_spec();
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_GPT2);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_model()->set_context_length(8);
  spec.mutable_model()->set_layers(1);
  spec.mutable_model()->set_heads(1);
  spec.mutable_model()->set_hidden_size(8);
  spec.mutable_data()->set_path("x");
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(8);
  spec.mutable_learning_rate()->set_peak(0.1);
  spec.mutable_batch()->set_global_batch_size(12);
  spec.set_steps(10);
  spec.mutable_mesh()->set_dp(dp);
  return request;
}

// All of a job's state is committed after every step.
inline v1::CreateTrainingJobRequest CommittingRequest(const std::string& id, int dp) {
  v1::CreateTrainingJobRequest request = Request(id, dp);
  v1::TrainingJobSpec& spec = *request.mutable_training_job()->mutable_spec();
  spec.mutable_offload()->mutable_optimizer()->set_tier(v1::TIER_NVME);
  return request;
}

inline v1::SavedState Saved(const std::string& uid, int global_rank, std::vector<int64_t> steps) {
  v1::SavedState saved;
  saved.set_job_uid(uid);
  saved.set_global_rank(global_rank);
  for (const int64_t step : steps) saved.add_steps(step);
  return saved;
}

class ControllerTest : public testing::Test {
 protected:
  ControllerTest()
      : store_(NewMemoryKeyValueStore()), log_("test", LogLevel::kError, LogFormat::kText) {
    Restart();
  }

  struct TestWorker {
    std::shared_ptr<FakeSession> session = std::make_shared<FakeSession>();
    int64_t id = 0;
    std::string instance;
  };

  // A new coordinator over the same journal, as after SIGKILL.
  void Restart() {
    ControllerOptions options;
    options.on_fatal = [](const absl::Status& status) { FAIL() << status; };
    controller_ = *Controller::Create(options, store_.get(), &clock_, &log_);
  }

  absl::StatusOr<TestWorker> TryAttach(const std::string& name, const std::string& instance,
                                       const v1::RunningJob& running = {},
                                       int64_t memory_bytes = 1 << 30,
                                       const std::vector<v1::SavedState>& saved = {}) {
    v1::RegisterWorker request =
        Registration(name, instance, {memory_bytes, int64_t{1} << 40, int64_t{1} << 40});
    request.mutable_saved()->Assign(saved.begin(), saved.end());
    *request.mutable_running() = running;
    TestWorker worker;
    worker.instance = instance;
    absl::StatusOr<int64_t> id = controller_->AttachWorker(request, worker.session);
    if (!id.ok()) return id.status();
    worker.id = *id;
    return worker;
  }
  static v1::RegisterWorker Registration(const std::string& name, const std::string& instance,
                                         const TierBytes& has) {
    v1::RegisterWorker request;
    request.set_protocol_version(1);
    request.mutable_worker()->set_name("workers/" + name);
    request.mutable_worker()->set_instance_id(instance);
    request.mutable_worker()->set_device_memory_bytes(has.device);
    request.mutable_worker()->set_host_memory_bytes(has.host);
    request.mutable_worker()->set_nvme_free_bytes(has.nvme);
    request.set_address("address of " + name);
    return request;
  }
  TestWorker Attach(const std::string& name, const v1::RunningJob& running = {}) {
    return *TryAttach(name, "instance of " + name, running);
  }
  // Another process of that name than Attach's, as after SIGKILL, with what its tier holds.
  TestWorker AttachAgain(const std::string& name, const std::vector<v1::SavedState>& saved) {
    return *TryAttach(name, "instance " + std::to_string(++restarts_), {}, 1 << 30, saved);
  }
  TestWorker AttachWithMemory(const std::string& name, int64_t memory_bytes) {
    return *TryAttach(name, "instance of " + name, {}, memory_bytes);
  }

  TestWorker AttachWithTiers(const std::string& name, const TierBytes& has) {
    TestWorker worker;
    worker.instance = "instance of " + name;
    worker.id =
        *controller_->AttachWorker(Registration(name, worker.instance, has), worker.session);
    return worker;
  }

  absl::StatusOr<v1::TrainingJob> Create(const v1::CreateTrainingJobRequest& request) {
    // With workers attached the answer comes later, when one has looked at the data.
    auto result = std::make_shared<absl::StatusOr<v1::TrainingJob>>(absl::InternalError("not yet"));
    controller_->CreateJob(request,
                           [result](absl::StatusOr<v1::TrainingJob> job) { *result = job; });
    return *result;
  }

  // With workers attached: whoever is asked about the data finds nothing wrong.
  void CreateChecked(const v1::CreateTrainingJobRequest& request,
                     const std::vector<TestWorker>& workers) {
    clock_.elapsed += absl::Milliseconds(1);  // jobs come one after another
    Create(request).IgnoreError();
    for (const TestWorker& worker : workers) {
      v1::WorkerMessage message;
      message.mutable_data_checked()->set_check_id(
          worker.session->Last(v1::CoordinatorMessage::kCheckData).check_data().check_id());
      controller_->HandleWorkerMessage(worker.id, message);
    }
  }

  // The job is RUNNING on w0 and w1.
  std::vector<TestWorker> Running(const v1::CreateTrainingJobRequest& request) {
    EXPECT_TRUE(Create(request).ok());
    std::vector<TestWorker> workers = {Attach("w0"), Attach("w1")};
    for (const TestWorker& worker : workers) Formed(worker);
    return workers;
  }

  absl::StatusOr<v1::TrainingJob> Verify(const v1::VerifyTrainingJobRequest& request) {
    auto result = std::make_shared<absl::StatusOr<v1::TrainingJob>>(absl::InternalError("not yet"));
    controller_->VerifyJob(request,
                           [result](absl::StatusOr<v1::TrainingJob> job) { *result = job; });
    return *result;
  }

  void Formed(const TestWorker& worker) {
    v1::WorkerMessage message;
    const v1::RankAssignment run = worker.session->Last(v1::CoordinatorMessage::kRun).run();
    message.mutable_groups_formed()->set_job_uid(run.job_uid());
    message.mutable_groups_formed()->set_epoch(run.epoch());
    controller_->HandleWorkerMessage(worker.id, message);
  }
  // steps: of the state that the worker's tier holds after it.
  void Ended(const TestWorker& worker, const absl::Status& status,
             const std::vector<int64_t>& steps = {},
             std::optional<int64_t> suspended_step = std::nullopt) {
    v1::WorkerMessage message;
    const v1::RankAssignment run = worker.session->Last(v1::CoordinatorMessage::kRun).run();
    v1::JobEnded& ended = *message.mutable_job_ended();
    ended.set_job_uid(run.job_uid());
    ended.set_epoch(run.epoch());
    *ended.mutable_status() = ToProto(status);
    if (!steps.empty()) {
      *ended.mutable_saved() = Saved(run.job_uid(), run.coordinates().global_rank(), steps);
    }
    if (suspended_step.has_value()) ended.set_suspended_step(*suspended_step);
    controller_->HandleWorkerMessage(worker.id, message);
  }
  void Suspended(const TestWorker& worker, int64_t step) {
    Ended(worker, absl::OkStatus(), {step}, step);
  }
  void SuspendFailed(const TestWorker& worker, int64_t epoch) {
    v1::WorkerMessage message;
    message.mutable_suspend_failed()->set_job_uid(RunningOf(worker).job_uid());
    message.mutable_suspend_failed()->set_epoch(epoch);
    *message.mutable_suspend_failed()->mutable_status() =
        ToProto(absl::ResourceExhaustedError("no space"));
    controller_->HandleWorkerMessage(worker.id, message);
  }
  void Step(const TestWorker& worker, int64_t step) {
    v1::WorkerMessage message;
    const v1::RankAssignment run = worker.session->Last(v1::CoordinatorMessage::kRun).run();
    message.mutable_step()->set_job_uid(run.job_uid());
    message.mutable_step()->set_epoch(run.epoch());
    message.mutable_step()->set_step(step);
    message.mutable_step()->set_seconds(1);
    controller_->HandleWorkerMessage(worker.id, message);
  }
  static int Count(const TestWorker& worker, v1::CoordinatorMessage::MessageCase kind) {
    int count = 0;
    for (const auto& message : worker.session->sent) count += message.message_case() == kind;
    return count;
  }
  v1::RunningJob RunningOf(const TestWorker& worker) {
    const v1::RankAssignment run = worker.session->Last(v1::CoordinatorMessage::kRun).run();
    v1::RunningJob running;
    running.set_job(run.job());
    running.set_job_uid(run.job_uid());
    running.set_epoch(run.epoch());
    return running;
  }
  v1::TrainingJob Job(const std::string& id) { return *controller_->GetJob("trainingJobs/" + id); }
  v1::TrainingJobStatus Status(const std::string& id) { return Job(id).status(); }
  v1::JobState State(const std::string& id) { return Status(id).state(); }
  v1::JobCondition LastCondition(const std::string& id) {
    return *Status(id).conditions().rbegin();
  }
  v1::Placement GetPlacementOf(const std::string& id) {
    return *controller_->GetPlacement("trainingJobs/" + id);
  }
  v1::TrainingJobStatus Suspend(const std::string& id) {
    return controller_->SuspendJob("trainingJobs/" + id)->status();
  }
  v1::TrainingJobStatus Resume(const std::string& id) {
    return controller_->ResumeJob("trainingJobs/" + id)->status();
  }
  void Advance(absl::Duration duration) {
    clock_.elapsed += duration;
    controller_->Tick();
  }

  int restarts_ = 0;  // of workers
  FakeClock clock_;
  std::unique_ptr<KeyValueStore> store_;
  Logger log_;
  std::unique_ptr<Controller> controller_;
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_CONTROLLER_TESTING_H_
