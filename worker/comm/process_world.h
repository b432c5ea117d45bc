// Ranks as processes, for tests.
#ifndef TESSERA_WORKER_COMM_PROCESS_WORLD_H_
#define TESSERA_WORKER_COMM_PROCESS_WORLD_H_

#include <functional>
#include <memory>
#include <string>

#include "worker/comm/conformance.h"
#include "worker/comm/cpu_transport.h"

namespace tessera {

// A new directory below /tmp, which goes with the object.
struct TempDir {
  TempDir();
  ~TempDir();
  char path[32] = "/tmp/tessera-comm-XXXXXX";
};

// Forks one process per rank. The calling process has no other threads.
class ProcessWorld : public World {
 public:
  // options(rank) gives each rank's transport; "DIR" as its directory is a temporary one.
  explicit ProcessWorld(std::function<CpuTransportOptions(int rank)> options)
      : options_(std::move(options)) {}
  void Run(int size, const std::function<void(TestRank&)>& body) override;

 private:
  const std::function<CpuTransportOptions(int rank)> options_;
};

// Memory that this process shares with those it forks later; zeroed; goes with the pointer.
std::shared_ptr<void> ForkSharedMemory(size_t size_bytes);

// Runs `body` in a new process, whose exit code is 1 where the test has failed in it; its id.
pid_t Fork(const std::function<void()>& body);
// Fails the test unless the process exits with 0.
void ExpectSuccess(pid_t pid);

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_PROCESS_WORLD_H_
