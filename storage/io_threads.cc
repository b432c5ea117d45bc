#include "storage/io_threads.h"

#include <utility>

namespace tessera {

IoThreads::IoThreads(int depth, int max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < depth; ++i) threads_.emplace_back([this] { Loop(); });
}

void IoThreads::Join() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void IoThreads::Run(std::function<void()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  has_room_.wait(lock, [this] { return queue_.size() < max_waiting_; });
  queue_.push_back(std::move(work));
  lock.unlock();
  has_work_.notify_one();
}

void IoThreads::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    has_room_.notify_one();
    work();
    work = nullptr;  // what it holds goes before the lock comes
    lock.lock();
  }
}

void PendingCount::Add() {
  std::unique_lock<std::mutex> lock(mutex_);
  has_fewer_.wait(lock, [this] { return count_ < limit_; });
  ++count_;
}

void PendingCount::Done() {
  // Notified under the lock: whoever waits may destroy this object next.
  std::lock_guard<std::mutex> lock(mutex_);
  --count_;
  has_fewer_.notify_all();
}

void PendingCount::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  has_fewer_.wait(lock, [this] { return count_ == 0; });
}

}  // namespace tessera
