// Looks at jobs' data files for the coordinator, beside whatever the worker is doing.
#ifndef TESSERA_WORKER_SERVICE_DATA_CHECKER_H_
#define TESSERA_WORKER_SERVICE_DATA_CHECKER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "proto/tessera/v1/attach.pb.h"

namespace tessera {

// One thread, one check after another. Thread-safe.
class DataChecker {
 public:
  // send as in JobRunner.
  DataChecker(std::string data_root, std::function<void(const v1::WorkerMessage&)> send);
  // Drops checks that have not begun.
  ~DataChecker();
  // Answers with data_checked.
  void Check(const v1::CheckData& check);

 private:
  void Run();

  const std::string data_root_;
  const std::function<void(const v1::WorkerMessage&)> send_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<v1::CheckData> checks_;  // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_DATA_CHECKER_H_
