#include "tests/bench/copy_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "tests/bench/process_group.h"
#include "worker/comm/reduce.h"

namespace tessera {
namespace {

constexpr size_t kBytes = 64 << 20;
constexpr int kRounds = 15;

struct Seconds {
  double of_memcpy, of_stream;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

CopyBandwidth MeasureCopyBandwidth(int processes) {
  using Clock = std::chrono::steady_clock;
  ProcessGroup<Seconds> group(processes);
  const bool ok = group.Run([&](int index) {
    std::vector<char> from(kBytes, 1), to(kBytes, 2);
    std::vector<double> times[2];
    for (int round = 0; round < kRounds; ++round) {
      for (int method = 0; method < 2; ++method) {
        group.Sync();
        const auto start = Clock::now();
        if (method == 0) {
          std::memcpy(to.data(), from.data(), kBytes);
        } else {
          CopyBytes(from.data(), to.data(), kBytes);
        }
        group.Sync();
        times[method].push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
    }
    if (index == 0) group.shared() = {Median(times[0]), Median(times[1])};
  });
  if (!ok) return {};
  const double bytes = 2.0 * kBytes * processes / 1e9;
  return {bytes / group.shared().of_memcpy, bytes / group.shared().of_stream};
}

}  // namespace tessera
