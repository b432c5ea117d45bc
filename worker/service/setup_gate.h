// Keeps generations off the device while a job takes its memory: jobs come first.
#ifndef TESSERA_WORKER_SERVICE_SETUP_GATE_H_
#define TESSERA_WORKER_SERVICE_SETUP_GATE_H_

#include <condition_variable>
#include <mutex>

namespace tessera {

// Thread-safe.
class SetupGate {
 public:
  // By a generation: whether it may use the device. If so, it leaves when it has given everything
  // back, and soon once closed() is true.
  bool Enter() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closings_ > 0) return false;
    ++inside_;
    return true;
  }
  void Leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  bool closed() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return closings_ > 0;
  }

  // By a job's thread: from here on nobody enters, and those inside have left.
  void Close() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++closings_;
    changed_.wait(lock, [this] { return inside_ == 0; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    --closings_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;    // guarded by mutex_
  int closings_ = 0;  // guarded by mutex_
};

// Closed for as long as this lives.
class SetupGateClosure {
 public:
  explicit SetupGateClosure(SetupGate& gate) : gate_(gate) { gate_.Close(); }
  ~SetupGateClosure() { gate_.Open(); }
  SetupGateClosure(const SetupGateClosure&) = delete;
  SetupGateClosure& operator=(const SetupGateClosure&) = delete;

 private:
  SetupGate& gate_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_SETUP_GATE_H_
