// Time, algbw and busbw of every collective between processes of this host, beside the machine's
// copy bandwidth, and of small all_reduces beside the same movement of data with nothing around it
// (all_reduce_bare). algbw = bytes / time; busbw as nccl-tests: what a ring would put on each link.
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/bare_all_reduce.h"
#include "tests/bench/copy_bandwidth.h"
#include "tests/bench/process_group.h"
#include "worker/comm/cpu_transport.h"

ABSL_FLAG(std::string, json, "", "file to write the figures to as one JSON object");
ABSL_FLAG(std::vector<std::string>, ranks, std::vector<std::string>({"2", "4", "8"}),
          "numbers of ranks");

namespace tessera {
namespace {

constexpr int kMaxRanks = 64;
constexpr size_t kAddressBytes = 512;
constexpr int kCores = 2;  // that the copy bandwidth is measured with
constexpr int64_t kSizes[] = {8, 64 << 10, 1 << 20, 64 << 20};
constexpr int64_t kTcpSizes[] = {8, 64 << 10, 4 << 20};
constexpr int64_t kBareSizes[] = {8, 64 << 10};

struct Run {
  const char* op;
  int ranks;
  int64_t bytes;
  double time_us;
  double bus_factor;
  double algbw_gbps() const { return bytes / time_us / 1e3; }
  double busbw_gbps() const { return algbw_gbps() * bus_factor; }
};

struct Rank {
  Communicator& comm;
  Stream& stream;
  Tensor input, output;  // of `bytes`, the larger of what an operation takes and gives
  int size() const { return comm.size(); }
};

struct Op {
  const char* name;
  const char* tcp_name;  // null: not measured over TCP
  double (*bus_factor)(int ranks);
  absl::Status (*run)(Rank& rank);
};

constexpr Op kOps[] = {
    {"all_reduce", "all_reduce_tcp", [](int n) { return 2.0 * (n - 1) / n; },
     [](Rank& r) { return r.comm.AllReduce(r.input, ReduceOp::kSum, r.stream); }},
    {"reduce_scatter", nullptr, [](int n) { return 1.0 * (n - 1) / n; },
     [](Rank& r) {
       const int64_t block = r.input.num_elements() / r.size();
       return r.comm.ReduceScatter(r.input.Slice(0, block * r.size()), r.output.Slice(0, block),
                                   ReduceOp::kSum, r.stream);
     }},
    {"all_gather", nullptr, [](int n) { return 1.0 * (n - 1) / n; },
     [](Rank& r) {
       const int64_t block = r.input.num_elements() / r.size();
       return r.comm.AllGather(r.input.Slice(0, block), r.output.Slice(0, block * r.size()),
                               r.stream);
     }},
    {"broadcast", nullptr, [](int) { return 1.0; },
     [](Rank& r) { return r.comm.Broadcast(r.input, 0, r.stream); }},
    {"all_to_all", nullptr, [](int n) { return 1.0 * (n - 1) / n; },
     [](Rank& r) {
       const int64_t all = r.input.num_elements() / r.size() * r.size();
       return r.comm.AllToAll(r.input.Slice(0, all), r.output.Slice(0, all), r.stream);
     }},
    // Everybody to its next neighbour, as in a ring.
    {"send_recv", "send_recv_tcp", [](int) { return 1.0; },
     [](Rank& r) {
       const int self = r.comm.group_rank(), next = (self + 1) % r.size();
       auto send = r.comm.StartSend(r.input, next, r.stream);
       auto recv = r.comm.StartRecv(r.output, (self + r.size() - 1) % r.size(), r.stream);
       if (!send.ok() || !recv.ok()) return absl::InternalError("start");
       absl::Status status = (*recv)->Wait();
       status.Update((*send)->Wait());
       return status;
     }},
    {"barrier", nullptr, [](int) { return 0.0; }, [](Rank& r) { return r.comm.Barrier(r.stream); }},
};
constexpr int kMaxRuns = std::size(kOps) * std::size(kSizes);

struct Shared {
  char address[kMaxRanks][kAddressBytes];
  int num_runs;
  Run runs[kMaxRuns];
};

[[noreturn]] void Die(const absl::Status& status) {
  fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  _exit(1);
}

double MedianUs(const Op& op, Rank& rank, int64_t bytes, bool is_tcp) {
  const int64_t rounds = std::clamp<int64_t>(
      (is_tcp ? 64 << 20 : 1 << 30) / std::max<int64_t>(bytes, 1), 15, is_tcp ? 300 : 3000);
  std::vector<double> times;
  for (int64_t round = 0; round < rounds + rounds / 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    if (absl::Status status = op.run(rank); !status.ok()) Die(status);
    if (round >= rounds / 5) {  // the first ones warm up
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
    }
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void RunRank(int self, int ranks, bool is_tcp, const std::string& dir,
             ProcessGroup<Shared>& group) {
  const int64_t max_bytes = is_tcp ? *std::rbegin(kTcpSizes) : *std::rbegin(kSizes);
  auto device = CpuDevice::Create(absl::StrCat("cpu:", self), 3 * max_bytes + (8 << 20) * ranks);
  if (!device.ok()) Die(device.status());
  CpuTransportOptions options;
  (is_tcp ? options.tcp_ip : options.socket_dir) = is_tcp ? "127.0.0.1" : dir;
  auto transport = CpuTransport::Create(**device, options);
  if (!transport.ok()) Die(transport.status());
  std::strncpy(group.shared().address[self], (*transport)->address().c_str(), kAddressBytes - 1);
  group.Sync();
  GroupSpec spec;
  spec.name = "bench";
  spec.job_uid = "bench";
  spec.group_rank = self;
  for (int r = 0; r < ranks; ++r) {
    spec.members.push_back({r, absl::StrCat("workers/w", r), group.shared().address[r]});
  }
  auto comm = (*transport)->Join(spec);
  if (!comm.ok()) Die(comm.status());
  auto stream = *(*device)->CreateStream();
  auto input = *(*device)->Allocate(max_bytes, MemoryCategory::kWorkspace, "bench");
  auto output = *(*device)->Allocate(max_bytes, MemoryCategory::kWorkspace, "bench");
  for (const Op& op : kOps) {
    if (is_tcp && op.tcp_name == nullptr) continue;
    const bool is_barrier = std::strcmp(op.name, "barrier") == 0;
    for (int64_t bytes : is_tcp ? absl::MakeConstSpan(kTcpSizes) : absl::MakeConstSpan(kSizes)) {
      const int64_t size = is_barrier ? 0 : std::max<int64_t>(bytes, 4 * ranks);
      Rank rank{**comm, *stream, input.View(DType::kFloat32, {size / 4}),
                output.View(DType::kFloat32, {size / 4})};
      // all_reduce takes any size; the others need an element per rank.
      if (std::strcmp(op.name, "all_reduce") == 0) rank.input = rank.input.Slice(0, bytes / 4);
      // Zeroes: sums stay finite, and their speed does not depend on values.
      for (const Tensor& tensor : {rank.input, rank.output}) {
        if (!(*device)->SetZero(tensor, *stream).ok()) Die(absl::InternalError("zero"));
      }
      if (absl::Status status = (*comm)->Barrier(*stream); !status.ok()) Die(status);
      const double us = MedianUs(op, rank, bytes, is_tcp);
      if (self == 0) {
        group.shared().runs[group.shared().num_runs++] = {
            is_tcp ? op.tcp_name : op.name, ranks,
            std::strcmp(op.name, "all_reduce") == 0 ? bytes : size, us, op.bus_factor(ranks)};
      }
      if (is_barrier) break;
    }
  }
  group.Sync();
}

std::vector<Run> Measure(int ranks, bool is_tcp) {
  char dir[] = "/tmp/tessera-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return {};
  ProcessGroup<Shared> group(ranks);
  const bool ok = group.Run([&](int self) { RunRank(self, ranks, is_tcp, dir, group); });
  std::filesystem::remove_all(dir);
  if (!ok) return {};
  std::vector<Run> runs(group.shared().runs, group.shared().runs + group.shared().num_runs);
  for (const int64_t bytes : kBareSizes) {
    if (!is_tcp)
      runs.push_back({"all_reduce_bare", ranks, bytes, BareAllReduceUs(ranks, bytes),
                      kOps[0].bus_factor(ranks)});
  }
  return runs;
}

bool WriteJson(const std::string& path, double copy_gbps, const std::vector<Run>& runs) {
  FILE* file = fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  fprintf(file, "{\"copy_gbps\": %.3f, \"runs\": [", copy_gbps);
  const char* separator = "\n";
  for (const Run& run : runs) {
    fprintf(file,
            "%s  {\"op\": \"%s\", \"ranks\": %d, \"bytes\": %lld, \"time_us\": %.3f, "
            "\"algbw_gbps\": %.4f, \"busbw_gbps\": %.4f}",
            separator, run.op, run.ranks, static_cast<long long>(run.bytes), run.time_us,
            run.algbw_gbps(), run.busbw_gbps());
    separator = ",\n";
  }
  fprintf(file, "\n]}\n");
  return fclose(file) == 0;
}

int Main() {
  const CopyBandwidth copy = MeasureCopyBandwidth(kCores);
  printf("copy bandwidth (read + write), %d cores: memcpy %.1f GB/s, non-temporal %.1f GB/s\n",
         kCores, copy.memcpy_gbps, copy.stream_gbps);
  printf("%-19s %5s %10s %11s %11s %11s %11s\n", "op", "ranks", "bytes", "time us", "algbw GB/s",
         "busbw GB/s", "busbw/copy");
  std::vector<Run> all;
  for (const bool is_tcp : {false, true}) {
    for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
      int ranks = 0;
      if (!absl::SimpleAtoi(text, &ranks) || ranks < 1 || ranks > kMaxRanks) {
        fprintf(stderr, "--ranks: \"%s\" is not between 1 and %d\n", text.c_str(), kMaxRanks);
        return 1;
      }
      const std::vector<Run> runs = Measure(ranks, is_tcp);
      if (runs.empty()) return 1;
      for (const Run& run : runs) {
        printf("%-19s %5d %10lld %11.2f %11.3f %11.3f %11.3f\n", run.op, run.ranks,
               static_cast<long long>(run.bytes), run.time_us, run.algbw_gbps(), run.busbw_gbps(),
               run.busbw_gbps() / copy.best_gbps());
        all.push_back(run);
      }
    }
  }
  const std::string json = absl::GetFlag(FLAGS_json);
  if (!json.empty() && !WriteJson(json, copy.best_gbps(), all)) {
    fprintf(stderr, "--json: cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
