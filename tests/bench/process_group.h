// The processes of a benchmark: forked together, started together, measured together.
#ifndef TESSERA_TESTS_BENCH_PROCESS_GROUP_H_
#define TESSERA_TESTS_BENCH_PROCESS_GROUP_H_

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace tessera {

// A T in memory shared with processes forked later, and a barrier for them.
template <class T>
class ProcessGroup {
 public:
  explicit ProcessGroup(int size) : size_(size) {
    memory_ = static_cast<Memory*>(
        mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) std::abort();
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&memory_->barrier, &attributes, size);
  }
  ~ProcessGroup() { munmap(memory_, sizeof(Memory)); }
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  T& shared() { return memory_->value; }
  // Called by every process: returns when all have.
  void Sync() { pthread_barrier_wait(&memory_->barrier); }
  // Runs body(index) in each process; false unless all end well.
  bool Run(const std::function<void(int)>& body) {
    fflush(nullptr);
    std::vector<pid_t> processes;
    for (int index = 0; index < size_; ++index) {
      const pid_t pid = fork();
      if (pid == 0) {
        body(index);
        fflush(nullptr);
        _exit(0);
      }
      processes.push_back(pid);
    }
    bool ok = true;
    for (pid_t pid : processes) {
      int status = 0;
      ok &= waitpid(pid, &status, 0) == pid && status == 0;
    }
    return ok;
  }

 private:
  struct Memory {
    pthread_barrier_t barrier;
    T value;
  };
  const int size_;
  Memory* memory_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_BENCH_PROCESS_GROUP_H_
