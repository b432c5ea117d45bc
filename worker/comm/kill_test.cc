// Members are killed in the middle of collectives; the others must learn it, lose nothing and form
// new groups. TESSERA_LONG_TESTS=1: 200 rounds each.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/comm/process_world.h"

namespace tessera {
namespace {

constexpr int kSurvivors = 2;
constexpr int kWarmUpRounds = 3;  // before counting what a process holds
constexpr int kOperationsBeforeKill = 20;
constexpr size_t kAddressBytes = 512;
constexpr int64_t kElements = 100'000;

int Rounds() { return std::getenv("TESSERA_LONG_TESTS") != nullptr ? 200 : 10; }

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A stage that processes wait for. Yields: they share two cores.
void AwaitAtLeast(const std::atomic<int64_t>& word, int64_t value) {
  while (word.load() < value) sched_yield();
}

// What all processes of a loop share. Rounds count from 1.
struct Shared {
  std::atomic<int64_t> survivors_up;
  char survivor_address[kSurvivors][kAddressBytes];
  std::atomic<int64_t> victim_round;  // whose address is below
  char victim_address[kAddressBytes];
  std::atomic<int64_t> victim_operations;
  std::atomic<int64_t> killed_round;
  std::atomic<int64_t> abort_called_ns;
  std::atomic<int64_t> rounds_done[kSurvivors];
};

// Where a process of the loop lives and how it is reached: called first in the process.
using Placement = std::function<CpuTransportOptions(int member)>;

struct Held {
  size_t descriptors = 0, mappings = 0;
};
Held CountHeld() {
  Held held;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++held.descriptors;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (absl::StrContains(line, "tessera")) ++held.mappings;
  }
  return held;
}

// The victim takes a different place in the group every round.
GroupSpec Spec(const Shared& shared, int64_t round, int member) {
  GroupSpec spec;
  spec.name = "dp";
  spec.job_uid = "job";
  spec.epoch = round;
  const int place = static_cast<int>(round % (kSurvivors + 1));
  for (int m = 0; m < kSurvivors; ++m) {
    spec.members.push_back({m, absl::StrCat("workers/w", m), shared.survivor_address[m]});
  }
  spec.members.insert(spec.members.begin() + place,
                      {kSurvivors, "workers/victim", shared.victim_address});
  for (size_t i = 0; i < spec.members.size(); ++i) {
    if (spec.members[i].global_rank == member) spec.group_rank = static_cast<int>(i);
  }
  return spec;
}

void RunVictim(Shared& shared, int64_t round, const Placement& placement) {
  const CpuTransportOptions options = placement(kSurvivors);
  auto device = *CpuDevice::Create("cpu:v", 8 << 20);
  auto transport = *CpuTransport::Create(*device, options);
  auto stream = *device->CreateStream();
  DeviceBuffer buffer = *device->Allocate(4 * kElements, MemoryCategory::kWorkspace, "test");
  const Tensor tensor = buffer.View(DType::kFloat32, {kElements});
  std::strncpy(shared.victim_address, transport->address().c_str(), kAddressBytes - 1);
  shared.victim_operations = 0;
  shared.victim_round = round;
  auto comm = transport->Join(Spec(shared, round, kSurvivors));
  ASSERT_TRUE(comm.ok()) << comm.status();
  while ((*comm)->AllReduce(tensor, ReduceOp::kSum, *stream).ok()) ++shared.victim_operations;
  pause();  // until it is killed, if the others were faster
}

void RunSurvivor(Shared& shared, int self, int rounds, const Placement& placement) {
  const CpuTransportOptions options = placement(self);
  auto device = *CpuDevice::Create(absl::StrCat("cpu:", self), 8 << 20);
  auto transport = *CpuTransport::Create(*device, options);
  auto stream = *device->CreateStream();
  DeviceBuffer buffer = *device->Allocate(4 * kElements, MemoryCategory::kWorkspace, "test");
  const Tensor tensor = buffer.View(DType::kFloat32, {kElements});
  std::strncpy(shared.survivor_address[self], transport->address().c_str(), kAddressBytes - 1);
  ++shared.survivors_up;
  Held before;
  std::vector<double> abort_ms;
  for (int64_t round = 1; round <= rounds; ++round) {
    AwaitAtLeast(shared.victim_round, round);
    AwaitAtLeast(shared.survivors_up, kSurvivors);
    auto comm = transport->Join(Spec(shared, round, self));
    ASSERT_TRUE(comm.ok()) << comm.status();
    // Even rounds: told by the control thread of the first survivor. Odd: they see it themselves.
    const bool is_told = round % 2 == 0;
    std::thread control;
    if (is_told && self == 0) {
      control = std::thread([&] {
        AwaitAtLeast(shared.killed_round, round);
        shared.abort_called_ns = NowNs();
        (*comm)->Abort(absl::AbortedError("workers/victim is lost"));
      });
    }
    absl::Status status;
    while (status.ok()) status = (*comm)->AllReduce(tensor, ReduceOp::kSum, *stream);
    const int64_t returned_ns = NowNs();
    EXPECT_TRUE(absl::IsUnavailable(status) || (is_told && absl::IsAborted(status))) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "workers/victim")) << status;
    if (control.joinable()) control.join();
    if (is_told) {
      AwaitAtLeast(shared.abort_called_ns, 1);
      abort_ms.push_back((returned_ns - shared.abort_called_ns.load()) / 1e6);
    }
    comm->reset();
    // Before it says that it is done: until then nobody knocks for the next round, which would be
    // counted as well.
    if (round == kWarmUpRounds) before = CountHeld();
    if (round == rounds) {
      const Held after = CountHeld();
      EXPECT_EQ(after.descriptors, before.descriptors);
      EXPECT_EQ(after.mappings, before.mappings);
    }
    shared.rounds_done[self] = round;
    for (const auto& done : shared.rounds_done) AwaitAtLeast(done, round);
  }
  std::sort(abort_ms.begin(), abort_ms.end());
  // Most within the promise; the last one only not a hang, as the machine may be busy.
  EXPECT_LT(abort_ms[abort_ms.size() * 9 / 10], 100);
  EXPECT_LT(abort_ms.back(), 2000);
  if (self == 0) {
    std::cout << rounds << " rounds, ms from abort to return: median "
              << abort_ms[abort_ms.size() / 2] << ", last " << abort_ms.back() << std::endl;
  }
}

void RunKillLoop(const Placement& placement) {
  const int rounds = Rounds();
  const std::shared_ptr<void> memory = ForkSharedMemory(sizeof(Shared));
  auto& shared = *new (memory.get()) Shared();
  std::vector<pid_t> survivors;
  for (int self = 0; self < kSurvivors; ++self) {
    survivors.push_back(Fork([&] { RunSurvivor(shared, self, rounds, placement); }));
  }
  AwaitAtLeast(shared.survivors_up, kSurvivors);
  for (int64_t round = 1; round <= rounds; ++round) {
    shared.abort_called_ns = 0;
    const pid_t victim = Fork([&] { RunVictim(shared, round, placement); });
    AwaitAtLeast(shared.victim_round, round);
    while (shared.victim_operations < kOperationsBeforeKill &&
           waitpid(victim, nullptr, WNOHANG) == 0)
      sched_yield();
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    ASSERT_EQ(waitpid(victim, nullptr, 0), victim);
    shared.killed_round = round;
    for (int s = 0; s < kSurvivors; ++s) {
      while (shared.rounds_done[s] < round) {
        int status = 0;
        ASSERT_EQ(waitpid(survivors[s], &status, WNOHANG), 0)
            << "survivor " << s << " ended in round " << round << ", wait status " << status;
        sched_yield();
      }
    }
  }
  for (pid_t survivor : survivors) ExpectSuccess(survivor);
}

TEST(KillLoop, MappedInsideAHost) {
  const TempDir dir;
  RunKillLoop([&](int) { return CpuTransportOptions{.socket_dir = dir.path}; });
}

TEST(KillLoop, TcpOnLoopback) {
  RunKillLoop([](int) { return CpuTransportOptions{.tcp_ip = "127.0.0.1"}; });
}

// Two network namespaces joined by a veth pair; gone with the object.
class TwoNamespaces {
 public:
  TwoNamespaces() {
    for (const char* side : {"a", "b"}) names_.push_back(absl::StrCat("tsr", getpid(), side));
    const std::string a = names_[0], b = names_[1];
    ok_ = Ip(absl::StrCat("netns add ", a)) && Ip(absl::StrCat("netns add ", b)) &&
          Ip(absl::StrCat("link add ", a, " type veth peer name ", b)) && Up(a, ip(0)) &&
          Up(b, ip(1));
  }
  ~TwoNamespaces() {
    for (const std::string& name : names_) {
      Ip(absl::StrCat("link del ", name));
      Ip(absl::StrCat("netns del ", name));
    }
  }
  bool ok() const { return ok_; }
  static std::string ip(int side) { return absl::StrCat("10.231.77.", side + 1); }
  // Moves the calling process.
  void Enter(int side) const {
    const int fd =
        open(absl::StrCat("/var/run/netns/", names_[side]).c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(setns(fd, CLONE_NEWNET), 0) << strerror(errno);
    close(fd);
  }

 private:
  static bool Ip(const std::string& command) {
    return system(absl::StrCat("/usr/sbin/ip ", command, " 2>/dev/null").c_str()) == 0;
  }
  static bool Up(const std::string& name, const std::string& ip) {
    return Ip(absl::StrCat("link set ", name, " netns ", name)) &&
           Ip(absl::StrCat("-n ", name, " addr add ", ip, "/24 dev ", name)) &&
           Ip(absl::StrCat("-n ", name, " link set ", name, " up")) &&
           Ip(absl::StrCat("-n ", name, " link set lo up"));
  }

  std::vector<std::string> names_;
  bool ok_ = false;
};

TEST(KillLoop, TcpBetweenNetworkNamespaces) {
  if (geteuid() != 0 || access("/usr/sbin/ip", X_OK) != 0) {
    GTEST_SKIP() << "needs root and iproute2 to make network namespaces";
  }
  const TwoNamespaces namespaces;
  if (!namespaces.ok()) GTEST_SKIP() << "this system lets root make no network namespaces";
  RunKillLoop([&](int member) {
    const int side = member % 2;  // the survivors are apart, the victim is with the first
    namespaces.Enter(side);
    return CpuTransportOptions{.tcp_ip = TwoNamespaces::ip(side)};
  });
}

}  // namespace
}  // namespace tessera
