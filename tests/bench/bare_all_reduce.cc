#include "tests/bench/bare_all_reduce.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "kernels/dtype.h"
#include "tests/bench/process_group.h"
#include "worker/comm/reduce.h"
#include "worker/comm/schedule.h"

namespace tessera {
namespace {

constexpr int kRounds = 3000;
constexpr int kLooks = 20;

struct Shared {
  alignas(64) std::atomic<uint64_t> arrived;
  alignas(64) double median_us;
};

// Returns once `ranks` processes have called it as often as this one; count is this one's calls.
void Meet(std::atomic<uint64_t>& arrived, int ranks, uint64_t& count) {
  const uint64_t all = ++count * ranks;
  arrived.fetch_add(1);
  for (int look = 0; arrived.load() < all; ++look) {
    if (look >= kLooks) sched_yield();
  }
}

}  // namespace

double BareAllReduceUs(int ranks, int64_t bytes) {
  const int64_t count = bytes / 4;
  const size_t size = static_cast<size_t>(bytes) * ranks;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  ProcessGroup<Shared> group(ranks);
  const bool ok = group.Run([&](int self) {
    const ElementRange block = Block(count, ranks, self);
    std::vector<const void*> sources;
    std::vector<void*> outputs;
    for (int rank = 0; rank < ranks; ++rank) {
      outputs.push_back(static_cast<float*>(memory) + rank * count + block.begin);
      sources.push_back(outputs.back());
    }
    std::vector<double> times;
    uint64_t meetings = 0;
    group.Sync();
    for (int round = 0; round < kRounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      Meet(group.shared().arrived, ranks, meetings);
      if (block.count > 0) {
        Reduce(DType::kFloat32, ReduceOp::kSum, sources, outputs, block.count);
      }
      Meet(group.shared().arrived, ranks, meetings);
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
    }
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    if (self == 0) group.shared().median_us = times[kRounds / 2];
  });
  munmap(memory, size);
  return ok ? group.shared().median_us : 0;
}

}  // namespace tessera
