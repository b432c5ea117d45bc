#include "worker/comm/process_world.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace tessera {

TempDir::TempDir() { EXPECT_NE(mkdtemp(path), nullptr); }

TempDir::~TempDir() {
  // What killed processes have left behind.
  const std::string command = std::string("rm -rf ") + path;
  EXPECT_EQ(system(command.c_str()), 0);
}

std::shared_ptr<void> ForkSharedMemory(size_t size_bytes) {
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return std::shared_ptr<void>(memory, [size_bytes](void* m) { munmap(m, size_bytes); });
}

pid_t Fork(const std::function<void()>& body) {
  fflush(nullptr);
  const pid_t pid = fork();
  EXPECT_GE(pid, 0);
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // none outlives the test
  body();
  fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

void ExpectSuccess(pid_t pid) {
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

void ProcessWorld::Run(int size, const std::function<void(TestRank&)>& body) {
  constexpr size_t kAddressBytes = 512;
  struct Shared {
    pthread_barrier_t published;
    char addresses[16][kAddressBytes];
  };
  const TempDir dir;
  const std::shared_ptr<void> memory = ForkSharedMemory(sizeof(Shared));
  auto* shared = static_cast<Shared*>(memory.get());
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->published, &attributes, size);
  std::vector<pid_t> processes;
  for (int r = 0; r < size; ++r) {
    processes.push_back(Fork([&] {
      CpuTransportOptions options = options_(r);
      if (options.socket_dir == "DIR") options.socket_dir = dir.path;
      auto device = *CpuDevice::Create("cpu:" + std::to_string(r), kTestArenaBytes);
      auto transport = *CpuTransport::Create(*device, options);
      std::strncpy(shared->addresses[r], transport->address().c_str(), kAddressBytes - 1);
      pthread_barrier_wait(&shared->published);
      auto stream = *device->CreateStream();
      TestRank rank{r, size, transport.get(), device.get(), stream.get(), {}};
      for (int i = 0; i < size; ++i) rank.addresses.emplace_back(shared->addresses[i]);
      body(rank);
    }));
  }
  for (pid_t process : processes) ExpectSuccess(process);
}

}  // namespace tessera
