// The nvme tier beside plain files in the same minutes: a step of values of 4 MiB written and
// committed, read back and verified, and the step before dropped; plain files newly written with
// direct IO at the same queue depth, synced, read, and the ones before unlinked; and files
// overwritten in place. A disk's speed varies, and one that has rested may be faster for a while:
// so the tier is first in every second round, each round reads either twice, the one that was first
// last, and medians are reported.
//
//   ./dev bench tier [--json=FILE] [--path=FOLDER] [--sizes_mib=1024,2048,4096] [--rounds=4]
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "storage/aligned_buffer.h"
#include "storage/tier_store.h"
#include "tests/bench/plain_files.h"

ABSL_FLAG(std::string, json, "", "File to write the figures to as one JSON object");
ABSL_FLAG(std::string, path, "", "Folder to write to; a new one in the test's or in .tessera");
ABSL_FLAG(std::vector<std::string>, sizes_mib, std::vector<std::string>({"1024", "2048", "4096"}),
          "Bytes of a step");
ABSL_FLAG(int, rounds, 4, "Of each size; even, so that either is first as often");
ABSL_FLAG(int, value_kib, 4096, "Of a value, and of a plain file's request");
ABSL_FLAG(int, depth, 8, "Values, and requests, at a time");
ABSL_FLAG(int, plain_files, 8, "Files that the plain step is cut into");
ABSL_FLAG(int, build_threads, 2, "That checksum values and hand them to RocksDB");
ABSL_FLAG(int, file_mib, 256, "Of the tier's files");

namespace tessera {
namespace {

constexpr int kSources = 32;  // more than a processor's cache holds

struct Sample {
  int64_t bytes = 0;
  double seconds = 0, cpu_s = 0;

  double gbps() const { return static_cast<double>(bytes) / seconds * 1e-9; }
  void Add(const Sample& other) {
    bytes += other.bytes;
    seconds += other.seconds;
    cpu_s += other.cpu_s;
  }
};

struct Round {
  int64_t bytes = 0;
  Sample plain_write, plain_read, overwrite, write, read;
  double plain_drop_s = 0, drop_s = 0, drop_call_s = 0;
  int64_t disk_bytes = 0;  // that the tier made go to the disk

  double amplification() const {
    return static_cast<double>(disk_bytes) / static_cast<double>(bytes);
  }
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// By the kernel's count: what this process made go to the disk.
int64_t WrittenBytes() {
  std::ifstream io("/proc/self/io");
  std::string key;
  int64_t count = 0;
  while (io >> key >> count) {
    if (key == "write_bytes:") return count;
  }
  return 0;
}

Sample Measure(int64_t bytes, const std::function<void()>& work) {
  const double cpu = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  work();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {bytes, seconds, CpuSeconds() - cpu};
}

double Seconds(const std::function<void()>& work) { return Measure(1, work).seconds; }

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Buffers that operations take and give back.
class Ring {
 public:
  Ring(int count, int64_t size_bytes) {
    for (int i = 0; i < count; ++i) {
      buffers_.emplace_back(size_bytes);
      std::memset(buffers_.back().data(), 0, size_bytes);  // is part of no growth
      free_.push_back(&buffers_.back());
    }
  }
  AlignedBuffer* Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    has_free_.wait(lock, [this] { return !free_.empty(); });
    AlignedBuffer* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void Give(AlignedBuffer* buffer) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(buffer);
    has_free_.notify_all();
  }
  void WaitForAll() {
    std::unique_lock<std::mutex> lock(mutex_);
    has_free_.wait(lock, [this] { return free_.size() == buffers_.size(); });
  }

 private:
  std::deque<AlignedBuffer> buffers_;
  std::mutex mutex_;
  std::condition_variable has_free_;
  std::vector<AlignedBuffer*> free_;  // guarded by mutex_
};

class TierBench {
 public:
  explicit TierBench(const std::string& folder)
      : folder_(folder),
        value_bytes_(int64_t{absl::GetFlag(FLAGS_value_kib)} << 10),
        depth_(absl::GetFlag(FLAGS_depth)),
        targets_(2 * depth_, value_bytes_) {
    std::mt19937_64 random(1);
    for (int i = 0; i < kSources; ++i) {
      sources_.emplace_back(value_bytes_);
      auto* words = reinterpret_cast<uint64_t*>(sources_.back().data());
      for (int64_t w = 0; w < value_bytes_ / 8; ++w) words[w] = random();
    }
    TierStoreOptions options;
    options.path = folder + "/tier";
    options.write_depth = options.read_depth = depth_;
    options.build_threads = absl::GetFlag(FLAGS_build_threads);
    options.file_bytes = int64_t{absl::GetFlag(FLAGS_file_mib)} << 20;
    options.reserve_bytes = 0;
    buffer_bytes_ = 2 * options.build_threads * value_bytes_;
    auto store = TierStore::Open(options);
    Check(store.status());
    store_ = *std::move(store);
  }

  // REQUIRES: rounds of one size follow each other.
  Round Run(int64_t bytes) {
    Round round;
    round.bytes = bytes;
    const std::function<void()> writes[] = {[&] { WritePlain(round); }, [&] { WriteTier(round); }};
    const std::function<void()> reads[] = {[&] { ReadPlain(round); }, [&] { ReadTier(round); }};
    const int first = static_cast<int>(step_ % 2), second = 1 - first;
    writes[first]();
    writes[second]();
    Overwrite(round);
    for (const int which : {first, second, second, first}) reads[which]();
    DropPlain(round);
    DropTier(round);
    ++step_;
    return round;
  }
  // Drops what the rounds of one size have left.
  void EndSize() {
    for (PlainFiles* files : {last_plain_.get(), overwritten_.get()}) {
      if (files != nullptr) files->Unlink();
    }
    last_plain_ = nullptr;
    overwritten_ = nullptr;
    Check(store_->DropJob("bench"));
    store_->CheckSpace(std::numeric_limits<int64_t>::max()).IgnoreError();
    step_ = 0;
  }
  int64_t buffer_bytes() const { return buffer_bytes_; }

 private:
  std::unique_ptr<PlainFiles> NewPlain(const std::string& name, int64_t bytes) const {
    return std::make_unique<PlainFiles>(absl::StrCat(folder_, "/", name, "-"),
                                        absl::GetFlag(FLAGS_plain_files), bytes, value_bytes_,
                                        depth_);
  }
  void WritePlain(Round& round) {
    plain_ = NewPlain(absl::StrCat("plain", step_), round.bytes);
    round.plain_write = Measure(round.bytes, [&] { plain_->Write(/*is_new=*/true, sources_); });
  }
  void ReadPlain(Round& round) {
    round.plain_read.Add(Measure(round.bytes, [&] { plain_->Read(sources_); }));
  }
  void DropPlain(Round& round) {
    if (last_plain_ != nullptr) round.plain_drop_s = Seconds([&] { last_plain_->Unlink(); });
    last_plain_ = std::move(plain_);
  }
  void Overwrite(Round& round) {
    if (overwritten_ == nullptr) {
      overwritten_ = NewPlain("overwritten", round.bytes);
      overwritten_->Write(/*is_new=*/true, sources_);
    }
    round.overwrite =
        Measure(round.bytes, [&] { overwritten_->Write(/*is_new=*/false, sources_); });
  }
  void WriteTier(Round& round) {
    const int64_t before = WrittenBytes();
    round.write = Measure(round.bytes, [&] {
      auto writer = store_->BeginStep("bench", step_, round.bytes);
      Check(writer.status());
      for (int64_t i = 0; i < round.bytes / value_bytes_; ++i) {
        Check((*writer)->StartWrite("layer", "optimizer", i, DType::kUInt8, {value_bytes_},
                                    Bytes(sources_[i % kSources]), nullptr));
      }
      Check((*writer)->Commit(""));
    });
    round.disk_bytes += WrittenBytes() - before;
  }
  void ReadTier(Round& round) {
    round.read.Add(Measure(round.bytes, [&] {
      for (int64_t i = 0; i < round.bytes / value_bytes_; ++i) {
        AlignedBuffer* target = targets_.Take();
        Check(store_->StartRead({"bench", step_, "layer", "optimizer", i}, DType::kUInt8,
                                value_bytes_, Bytes(*target), [this, target](absl::Status status) {
                                  Check(status);
                                  targets_.Give(target);
                                }));
      }
      targets_.WaitForAll();
    }));
  }
  void DropTier(Round& round) {
    const int64_t before = WrittenBytes();
    if (step_ > 0) {
      round.drop_s = Seconds([&] {
        round.drop_call_s = Seconds([&] { Check(store_->DropStep("bench", step_ - 1)); });
        // Waits until the space is free, so that this work is in no other figure.
        store_->CheckSpace(std::numeric_limits<int64_t>::max()).IgnoreError();
      });
    }
    round.disk_bytes += WrittenBytes() - before;
  }
  absl::Span<uint8_t> Bytes(const AlignedBuffer& buffer) const {
    return {buffer.data(), static_cast<size_t>(value_bytes_)};
  }

  const std::string folder_;
  const int64_t value_bytes_;
  const int depth_;
  int64_t buffer_bytes_ = 0;
  std::vector<AlignedBuffer> sources_;
  Ring targets_;
  int64_t step_ = 0;
  std::unique_ptr<PlainFiles> plain_, last_plain_, overwritten_;
  std::unique_ptr<TierStore> store_;
};

double Median(const std::vector<Round>& rounds, const std::function<double(const Round&)>& figure) {
  std::vector<double> figures;
  for (const Round& round : rounds) figures.push_back(figure(round));
  std::sort(figures.begin(), figures.end());
  const size_t n = figures.size();
  return (figures[(n - 1) / 2] + figures[n / 2]) / 2;
}

std::string Figures(const std::vector<Round>& rounds) {
  const struct {
    const char* name;
    std::function<double(const Round&)> figure;
  } kFigures[] = {
      {"plain_write_gbps", [](const Round& r) { return r.plain_write.gbps(); }},
      {"plain_read_gbps", [](const Round& r) { return r.plain_read.gbps(); }},
      {"overwrite_gbps", [](const Round& r) { return r.overwrite.gbps(); }},
      {"write_gbps", [](const Round& r) { return r.write.gbps(); }},
      {"read_gbps", [](const Round& r) { return r.read.gbps(); }},
      {"write_ratio", [](const Round& r) { return r.write.gbps() / r.plain_write.gbps(); }},
      {"read_ratio", [](const Round& r) { return r.read.gbps() / r.plain_read.gbps(); }},
      {"write_amplification", [](const Round& r) { return r.amplification(); }},
      {"plain_write_cpu_s", [](const Round& r) { return r.plain_write.cpu_s; }},
      {"plain_read_cpu_s", [](const Round& r) { return r.plain_read.cpu_s; }},
      {"write_cpu_s", [](const Round& r) { return r.write.cpu_s; }},
      {"read_cpu_s", [](const Round& r) { return r.read.cpu_s; }},
      {"plain_drop_s", [](const Round& r) { return r.plain_drop_s; }},
      {"drop_s", [](const Round& r) { return r.drop_s; }},
      {"drop_call_s", [](const Round& r) { return r.drop_call_s; }},
  };
  std::vector<std::string> parts;
  for (const auto& f : kFigures) {
    parts.push_back(absl::StrFormat("\"%s\": %.4g", f.name, Median(rounds, f.figure)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string NewFolder() {
  std::string path = absl::GetFlag(FLAGS_path);
  if (path.empty()) {
    const char* test = std::getenv("TEST_TMPDIR");
    path = test != nullptr ? test : ".tessera";
  }
  std::filesystem::create_directories(path);
  path += "/tier_bench_XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    std::fprintf(stderr, "--path: cannot make a folder in it\n");
    std::exit(1);
  }
  return path;
}

int Main() {
  const std::string folder = NewFolder();
  std::vector<Round> all;
  std::vector<std::string> runs;
  int64_t growth = 0, buffers = 0;
  {
    TierBench bench(folder);
    const int64_t peak = PeakBytes();
    buffers = bench.buffer_bytes();
    for (const std::string& size : absl::GetFlag(FLAGS_sizes_mib)) {
      int64_t mib = 0;
      if (!absl::SimpleAtoi(size, &mib) || mib <= 0) {
        std::fprintf(stderr, "--sizes_mib: '%s' is no size\n", size.c_str());
        return 1;
      }
      std::vector<Round> rounds;
      for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
        rounds.push_back(bench.Run(mib << 20));
        const Round& r = rounds.back();
        std::printf(
            "%5ld MiB  write: plain %.2f GB/s, over %.2f, tier %.2f   read: plain %.2f, "
            "tier %.2f   drop: plain %.2f s, tier %.2f   amplification %.4f   cpu of "
            "writes: plain %.2f s, tier %.2f; of reads %.2f, %.2f\n",
            static_cast<long>(mib), r.plain_write.gbps(), r.overwrite.gbps(), r.write.gbps(),
            r.plain_read.gbps(), r.read.gbps(), r.plain_drop_s, r.drop_s, r.amplification(),
            r.plain_write.cpu_s, r.write.cpu_s, r.plain_read.cpu_s, r.read.cpu_s);
        std::fflush(stdout);
      }
      bench.EndSize();
      all.insert(all.end(), rounds.begin(), rounds.end());
      runs.push_back(absl::StrCat("{\"bytes\": ", mib << 20, ", ", Figures(rounds), "}"));
    }
    growth = PeakBytes() - peak;
  }
  std::filesystem::remove_all(folder);
  const std::string figures = absl::StrCat("{", Figures(all), ", \"peak_growth_bytes\": ", growth,
                                           ", \"buffer_bytes\": ", buffers, ", \"runs\": [",
                                           absl::StrJoin(runs, ", "), "]}");
  std::printf("%s\n", figures.c_str());
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return 0;
  std::ofstream file(path);
  file << figures << "\n";
  file.close();
  if (file.good()) return 0;
  std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
