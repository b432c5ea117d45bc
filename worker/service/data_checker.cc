#include "worker/service/data_checker.h"

#include <utility>

#include "proto/rpc/status.h"
#include "worker/data/token_source.h"
#include "worker/trainer/initial_weights_file.h"

namespace tessera {
namespace {

absl::Status CheckFiles(const v1::TrainingJobSpec& spec, const std::string& data_root) {
  absl::Status status = CheckJobData(spec, data_root);
  return status.ok() ? OpenInitialWeights(spec, data_root).status() : status;
}

}  // namespace

DataChecker::DataChecker(std::string data_root, std::function<void(const v1::WorkerMessage&)> send)
    : data_root_(std::move(data_root)), send_(std::move(send)), thread_([this] { Run(); }) {}

DataChecker::~DataChecker() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void DataChecker::Check(const v1::CheckData& check) {
  std::lock_guard<std::mutex> lock(mutex_);
  checks_.push_back(check);
  wake_.notify_all();
}

void DataChecker::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !checks_.empty(); });
    if (stopping_) return;
    const v1::CheckData check = std::move(checks_.front());
    checks_.pop_front();
    lock.unlock();
    v1::WorkerMessage message;
    message.mutable_data_checked()->set_check_id(check.check_id());
    *message.mutable_data_checked()->mutable_status() =
        ToProto(CheckFiles(check.spec(), data_root_));
    send_(message);
    lock.lock();
  }
}

}  // namespace tessera
