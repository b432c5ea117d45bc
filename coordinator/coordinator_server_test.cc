// The coordinator over real connections: health, reflection, watches, worker streams, draining.
#include "coordinator/coordinator_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "coordinator/controller_testing.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "proto/rpc/status.h"
#include "proto/tessera/v1/attach.grpc.pb.h"
#include "proto/tessera/v1/cluster.grpc.pb.h"
#include "proto/tessera/v1/jobs.grpc.pb.h"

namespace tessera {
namespace {

class CoordinatorServerTest : public testing::Test {
 protected:
  CoordinatorServerTest()
      : store_(NewMemoryKeyValueStore()),
        log_("test", LogLevel::kError, LogFormat::kText),
        authorization_(false, {}, {}) {
    ControllerOptions options;
    options.on_fatal = [](const absl::Status& status) { ADD_FAILURE() << status; };
    controller_ = *Controller::Create(options, store_.get(), &clock_, &log_);
    server_ = *CoordinatorServer::Start({"127.0.0.1:0", {}, absl::Milliseconds(500)},
                                        controller_.get(), &authorization_);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::Jobs::NewStub(channel_);
  }

  absl::Status CreateJob(const std::string& id) {
    const v1::CreateTrainingJobRequest request = Request(id, 1);
    grpc::ClientContext context;
    v1::TrainingJob job;
    return FromGrpc(jobs_->CreateTrainingJob(&context, request, &job));
  }

  grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status =
        grpc::health::v1::Health::NewStub(channel_)->Check(&context, request, &response);
    return status.ok() ? response.status() : grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN;
  }

  static v1::WorkerMessage Register(const std::string& name) {
    v1::WorkerMessage message;
    message.mutable_register_()->set_protocol_version(1);
    message.mutable_register_()->mutable_worker()->set_name("workers/" + name);
    message.mutable_register_()->mutable_worker()->set_instance_id("instance");
    return message;
  }

  SystemClock clock_;
  std::unique_ptr<KeyValueStore> store_;
  Logger log_;
  const Authorization authorization_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

TEST_F(CoordinatorServerTest, EveryServiceIsHealthy) {
  for (const char* service :
       {"", "tessera.v1.Jobs", "tessera.v1.Cluster", "tessera.v1.WorkerAttach"}) {
    EXPECT_EQ(Health(service), grpc::health::v1::HealthCheckResponse::SERVING) << service;
  }
  EXPECT_EQ(Health("tessera.v1.Nothing"), grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN);
}

TEST_F(CoordinatorServerTest, ReflectionListsTheServices) {
  // ServerReflectionRequest{list_services: "*"}, by hand: a second copy of reflection.proto would
  // clash with the one inside the library.
  const grpc::Slice slice("\x3a\x01*", 3);
  grpc::ByteBuffer request(&slice, 1), response;
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(next());
  call->Write(request, nullptr);
  ASSERT_TRUE(next());
  call->Read(&response, nullptr);
  ASSERT_TRUE(next());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(response.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& part : slices) {
    text.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  for (const char* service : {"tessera.v1.Jobs", "tessera.v1.Cluster", "tessera.v1.WorkerAttach"}) {
    EXPECT_NE(text.find(service), std::string::npos) << service;
  }
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  queue.Shutdown();
}

TEST_F(CoordinatorServerTest, AWatchShowsTheStateThenEveryChangeAndEndsWithTheJob) {
  ASSERT_TRUE(CreateJob("a").ok());
  grpc::ClientContext context;
  v1::WatchTrainingJobsRequest request;
  request.set_name("trainingJobs/a");
  auto reader = jobs_->WatchTrainingJobs(&context, request);
  v1::WatchTrainingJobsResponse first, second, none;
  ASSERT_TRUE(reader->Read(&first));
  EXPECT_EQ(first.training_job().status().state(), v1::JOB_STATE_PENDING);
  ASSERT_TRUE(controller_->CancelJob("trainingJobs/a").ok());
  ASSERT_TRUE(reader->Read(&second));
  EXPECT_EQ(second.training_job().status().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_GT(second.revision(), first.revision());
  EXPECT_FALSE(reader->Read(&none));
  EXPECT_TRUE(reader->Finish().ok());
}

// A suspended job has not ended.
TEST_F(CoordinatorServerTest, AWatchGoesOnOverASuspension) {
  ASSERT_TRUE(CreateJob("a").ok());
  grpc::ClientContext watch_context;
  v1::WatchTrainingJobsRequest watch;
  watch.set_name("trainingJobs/a");
  auto reader = jobs_->WatchTrainingJobs(&watch_context, watch);
  v1::WatchTrainingJobsResponse change;
  ASSERT_TRUE(reader->Read(&change));

  v1::TrainingJob job;
  grpc::ClientContext suspend_context, resume_context, cancel_context, late_context;
  v1::SuspendTrainingJobRequest suspend;
  suspend.set_name("trainingJobs/a");
  ASSERT_TRUE(jobs_->SuspendTrainingJob(&suspend_context, suspend, &job).ok());
  EXPECT_EQ(job.status().state(), v1::JOB_STATE_SUSPENDED);
  v1::ResumeTrainingJobRequest resume;
  resume.set_name("trainingJobs/a");
  ASSERT_TRUE(jobs_->ResumeTrainingJob(&resume_context, resume, &job).ok());
  EXPECT_EQ(job.status().state(), v1::JOB_STATE_PENDING);
  v1::CancelTrainingJobRequest cancel;
  cancel.set_name("trainingJobs/a");
  ASSERT_TRUE(jobs_->CancelTrainingJob(&cancel_context, cancel, &job).ok());
  for (const v1::JobState state :
       {v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_PENDING, v1::JOB_STATE_CANCELLED}) {
    ASSERT_TRUE(reader->Read(&change));
    EXPECT_EQ(change.training_job().status().state(), state);
  }
  EXPECT_FALSE(reader->Read(&change));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(jobs_->SuspendTrainingJob(&late_context, suspend, &job).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(CoordinatorServerTest, AWatchResumesWithoutGapsAndRefusesUnknownRevisions) {
  ASSERT_TRUE(CreateJob("a").ok());
  const int64_t revision = controller_->GetJob("trainingJobs/a")->status().revision();
  ASSERT_TRUE(CreateJob("b").ok());
  ASSERT_TRUE(controller_->CancelJob("trainingJobs/a").ok());
  v1::WatchTrainingJobsRequest request;
  request.set_revision(revision);
  {
    grpc::ClientContext context;
    auto reader = jobs_->WatchTrainingJobs(&context, request);
    v1::WatchTrainingJobsResponse response;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.training_job().name(), "trainingJobs/b");
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.training_job().name(), "trainingJobs/a");
    context.TryCancel();
    reader->Finish();
  }
  grpc::ClientContext context;
  request.set_revision(revision + 1000000);
  auto reader = jobs_->WatchTrainingJobs(&context, request);
  v1::WatchTrainingJobsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(CoordinatorServerTest, AWorkersStreamRegistersFirst) {
  auto stub = v1::WorkerAttach::NewStub(channel_);
  {
    grpc::ClientContext context;
    auto stream = stub->Attach(&context);
    v1::WorkerMessage message;
    message.mutable_heartbeat();
    stream->Write(message);
    v1::CoordinatorMessage answer;
    EXPECT_FALSE(stream->Read(&answer));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  stream->Write(Register("w0"));
  v1::CoordinatorMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_registered());
  EXPECT_EQ(controller_->ListWorkers({})->workers(0).state(), v1::WORKER_STATE_IDLE);
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(CoordinatorServerTest, AGenerationStreamsFromWorkerToClient) {
  v1::GenerateRequest request;
  request.set_path("weights");
  request.set_text("x");
  {
    grpc::ClientContext context;
    auto reader = jobs_->Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE) << "no worker";
  }
  grpc::ClientContext worker_context;
  auto worker = v1::WorkerAttach::NewStub(channel_)->Attach(&worker_context);
  worker->Write(Register("w0"));
  v1::CoordinatorMessage order;
  ASSERT_TRUE(worker->Read(&order));
  {
    grpc::ClientContext context;
    auto reader = jobs_->Generate(&context, request);
    ASSERT_TRUE(worker->Read(&order));
    v1::WorkerMessage message;
    v1::Generated& generated = *message.mutable_generated();
    generated.set_generation_id(order.run_generation().generation_id());
    for (const char* text : {"one", "two"}) {
      generated.mutable_response()->set_text(text);
      if (std::string(text) == "two") generated.mutable_status();
      worker->Write(message);
    }
    v1::GenerateResponse first, second, none;
    ASSERT_TRUE(reader->Read(&first));
    ASSERT_TRUE(reader->Read(&second));
    EXPECT_EQ(first.text() + second.text(), "onetwo");
    EXPECT_FALSE(reader->Read(&none));
    EXPECT_TRUE(reader->Finish().ok());
  }
  // A client that leaves is noticed by the worker.
  grpc::ClientContext context;
  auto reader = jobs_->Generate(&context, request);
  ASSERT_TRUE(worker->Read(&order));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const std::string id = order.run_generation().generation_id();
  ASSERT_TRUE(worker->Read(&order));
  EXPECT_EQ(order.cancel_generation().generation_id(), id);
  worker->WritesDone();
  EXPECT_FALSE(worker->Read(&order));
  worker->Finish();
}

TEST_F(CoordinatorServerTest, ManyStreamsComeAndGo) {
  auto stub = v1::WorkerAttach::NewStub(channel_);
  for (int round = 0; round < 30; ++round) {
    grpc::ClientContext worker_context, watch_context;
    auto stream = stub->Attach(&worker_context);
    stream->Write(Register("w" + std::to_string(round % 3)));
    v1::CoordinatorMessage answer;
    ASSERT_TRUE(stream->Read(&answer)) << round;
    auto watch = jobs_->WatchTrainingJobs(&watch_context, {});
    if (round % 2 == 0) worker_context.TryCancel();
    watch_context.TryCancel();
    watch->Finish();
    stream->WritesDone();
    stream->Finish();
  }
}

TEST_F(CoordinatorServerTest, StoppingEndsStreamsAndRefusesNewCalls) {
  auto stub = v1::WorkerAttach::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  stream->Write(Register("w0"));
  v1::CoordinatorMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  server_->Stop();
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(CreateJob("late").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tessera
