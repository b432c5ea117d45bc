// What a disk does without a store: new files written and read with direct IO, several requests at
// a time, by system calls alone.
#ifndef TESSERA_TESTS_BENCH_PLAIN_FILES_H_
#define TESSERA_TESTS_BENCH_PLAIN_FILES_H_

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "storage/aligned_buffer.h"

namespace tessera {

// `count` files of one prefix with `bytes` together, in requests of `request_bytes`, `depth` at a
// time. Ends the process on an error.
class PlainFiles {
 public:
  PlainFiles(std::string prefix, int count, int64_t bytes, int64_t request_bytes, int depth)
      : prefix_(std::move(prefix)),
        count_(count),
        requests_(bytes / request_bytes),
        request_bytes_(request_bytes),
        depth_(depth) {}

  // Anew, or over what is there; on the disk when it returns. Request i is of sources[i % size].
  void Write(bool is_new, const std::vector<AlignedBuffer>& sources) {
    Open(O_WRONLY | (is_new ? O_CREAT | O_TRUNC : O_CREAT));
    // A file of its own for each thread where there are as many: an extending write locks its file.
    ForEach([&](int, int64_t request, int file, int64_t offset) {
      const AlignedBuffer& source = sources[request % sources.size()];
      if (pwrite(files_[file], source.data(), request_bytes_, offset) != request_bytes_)
        Die("write");
    });
    std::vector<std::thread> threads;
    for (const int file : files_) {
      threads.emplace_back([this, file] {
        if (fsync(file) != 0) Die("fsync");
      });
    }
    for (std::thread& thread : threads) thread.join();
    Close();
  }
  // Into one of `buffers` for each thread.
  void Read(const std::vector<AlignedBuffer>& buffers) {
    Open(O_RDONLY);
    ForEach([&](int thread, int64_t, int file, int64_t offset) {
      if (pread(files_[file], buffers[thread].data(), request_bytes_, offset) != request_bytes_) {
        Die("read");
      }
    });
    Close();
  }
  void Unlink() {
    for (int i = 0; i < count_; ++i) unlink(Path(i).c_str());
  }

 private:
  [[noreturn]] void Die(const char* what) const {
    std::fprintf(stderr, "%s: %s: %s\n", prefix_.c_str(), what, std::strerror(errno));
    std::exit(1);
  }
  std::string Path(int i) const { return prefix_ + std::to_string(i); }
  void Open(int flags) {
    for (int i = 0; i < count_; ++i) {
      files_.push_back(open(Path(i).c_str(), flags | O_DIRECT | O_CLOEXEC, 0644));
      if (files_.back() < 0) Die("open");
    }
  }
  void Close() {
    for (const int file : files_) close(file);
    files_.clear();
  }
  template <typename Request>
  void ForEach(const Request& request) {
    std::atomic<int64_t> next = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < depth_; ++t) {
      threads.emplace_back([&, t] {
        if (count_ == depth_) {
          for (int64_t i = t; i < requests_; i += depth_)
            request(t, i, t, i / count_ * request_bytes_);
        } else {
          for (int64_t i = next++; i < requests_; i = next++) {
            request(t, i, static_cast<int>(i % count_), i / count_ * request_bytes_);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const std::string prefix_;
  const int count_;
  const int64_t requests_, request_bytes_;
  const int depth_;
  std::vector<int> files_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_BENCH_PLAIN_FILES_H_
