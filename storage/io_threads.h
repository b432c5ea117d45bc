// Threads for blocking IO behind a bounded queue.
#ifndef TESSERA_STORAGE_IO_THREADS_H_
#define TESSERA_STORAGE_IO_THREADS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

// Thread-safe.
class IoThreads {
 public:
  // So many operations run at a time, and as many again may wait, or max_waiting.
  // REQUIRES: both >= 1.
  explicit IoThreads(int depth) : IoThreads(depth, depth) {}
  IoThreads(int depth, int max_waiting);
  ~IoThreads() { Join(); }
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  // Queues work; blocks while the queue is full. Work is started in the order of these calls.
  // REQUIRES: not called from a thread of this object, which might wait for itself.
  void Run(std::function<void()> work);
  // Runs what is queued, and waits for it; no work may come after. Can be called again.
  void Join();

 private:
  void Loop();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_room_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool is_closing_ = false;                  // guarded by mutex_
  std::vector<std::thread> threads_;
};

// Counts operations that are under way. Thread-safe.
class PendingCount {
 public:
  // REQUIRES: limit >= 1.
  explicit PendingCount(int limit = std::numeric_limits<int>::max()) : limit_(limit) {}
  // Blocks while there are as many as the limit.
  void Add();
  void Done();
  // Until there are none.
  void Wait();

 private:
  const int limit_;
  std::mutex mutex_;
  std::condition_variable has_fewer_;
  int count_ = 0;  // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_IO_THREADS_H_
