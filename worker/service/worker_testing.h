// A worker with a device of its own and no coordinator, for tests.
#ifndef TESSERA_WORKER_SERVICE_WORKER_TESTING_H_
#define TESSERA_WORKER_SERVICE_WORKER_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "plan/mesh.h"
#include "proto/rpc/status.h"
#include "worker/comm/in_process_transport.h"
#include "worker/service/job_runner.h"

namespace tessera {

class WorkerTest : public testing::Test {
 protected:
  WorkerTest()
      : device_(*CpuDevice::Create("cpu:0", 64 << 20)),
        transport_(hub_.CreateTransport(*device_)),
        log_("test", LogLevel::kError, LogFormat::kText) {
    root_ = testing::TempDir() + "/workerXXXXXX";
    if (mkdtemp(root_.data()) == nullptr) abort();
    std::ofstream text(root_ + "/text");
    for (int i = 0; i < 500; ++i) text << "the quick brown fox " << i;
    text.close();
    kept_weights_ = std::make_unique<KeptWeights>(root_ + "/weights", 2);
    context_ = {"workers/w0",     root_,  root_ + "/exports", device_.get(),
                transport_.get(), &gate_, kept_weights_.get()};
    runner_ = std::make_unique<JobRunner>(
        context_, &log_, [this](const v1::WorkerMessage& message) { Send(message); });
  }

  // Where the worker's messages go.
  void Send(const v1::WorkerMessage& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    sent_.push_back(message);
    changed_.notify_all();
  }

  v1::RankAssignment Assignment(const std::string& uid, int64_t steps) const {
    v1::RankAssignment assignment;
    assignment.set_job("trainingJobs/" + uid);
    assignment.set_job_uid(uid);
    assignment.set_epoch(1);
    v1::TrainingJobSpec& spec = *assignment.mutable_spec();
    spec.mutable_model()->set_family(v1::MODEL_FAMILY_GPT2);
    spec.mutable_model()->set_vocab_size(256);
    spec.mutable_model()->set_context_length(8);
    spec.mutable_model()->set_layers(1);
    spec.mutable_model()->set_heads(2);
    spec.mutable_model()->set_hidden_size(8);
    spec.mutable_data()->set_path("text");
    spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    spec.mutable_data()->set_sequence_length(8);
    spec.mutable_learning_rate()->set_peak(0.01);
    spec.mutable_batch()->set_global_batch_size(2);
    spec.set_steps(steps);
    for (plan::GroupAxis axis : plan::kGroupAxes) {
      const plan::Group group = plan::GroupOf({}, 0, axis);
      v1::GroupAssignment& part = *assignment.add_groups();
      part.set_name(group.name);
      v1::GroupMember& member = *part.add_members();
      member.set_worker("workers/w0");
      member.set_address(transport_->address());
    }
    return assignment;
  }

  // Blocks until a message that matches has been sent; the first such.
  v1::WorkerMessage AwaitMatch(const std::function<bool(const v1::WorkerMessage&)>& matches) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      for (const v1::WorkerMessage& message : sent_) {
        if (matches(message)) return message;
      }
      changed_.wait(lock);
    }
  }
  // Of this kind about this job.
  v1::WorkerMessage Await(v1::WorkerMessage::MessageCase kind, const std::string& uid) {
    return AwaitMatch([&](const v1::WorkerMessage& message) {
      if (message.message_case() != kind) return false;
      return kind == v1::WorkerMessage::kJobEnded ? message.job_ended().job_uid() == uid
                                                  : message.step().job_uid() == uid;
    });
  }
  void Acknowledge(const std::string& uid) {
    v1::JobEndedAck ack;
    ack.set_job_uid(uid);
    ack.set_epoch(1);
    runner_->HandleJobEndedAck(ack);
  }
  absl::Status EndOf(const std::string& uid) {
    return FromProto(Await(v1::WorkerMessage::kJobEnded, uid).job_ended().status());
  }

  InProcessHub hub_;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Transport> transport_;
  Logger log_;
  std::string root_;
  SetupGate gate_;
  std::unique_ptr<KeptWeights> kept_weights_;
  WorkerContext context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::WorkerMessage> sent_;  // guarded by mutex_
  std::unique_ptr<JobRunner> runner_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_WORKER_TESTING_H_
