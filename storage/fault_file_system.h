// A file system for tests whose n-th operation fails, or kills the process.
#ifndef TESSERA_STORAGE_FAULT_FILE_SYSTEM_H_
#define TESSERA_STORAGE_FAULT_FILE_SYSTEM_H_

#include <rocksdb/file_system.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

namespace tessera {

enum class FaultKind {
  kIoError,     // nothing is done
  kNoSpace,     // nothing is done
  kShortWrite,  // half of a write is done; nothing of another operation
  kLate,        // all is done, but an error is reported
  kKill,        // SIGKILL to this process, after half of a write
};

// What fails, and what has been done. Thread-safe.
struct FaultPlan {
  // Counts what changes files or folders (and reads, where wanted), but for RocksDB's log of
  // messages.
  std::atomic<int64_t> operations = 0;
  std::atomic<int64_t> fail_at = std::numeric_limits<int64_t>::max();
  std::atomic<bool> fails_on = false;  // all later ones fail as well
  std::atomic<bool> counts_reads = false;
  std::atomic<FaultKind> kind = FaultKind::kIoError;
  // Bytes that may be written before the disk is full; deleted files give none back.
  std::atomic<int64_t> quota_bytes = std::numeric_limits<int64_t>::max();
  // What GetFreeSpace says; negative: the truth.
  std::atomic<int64_t> free_bytes = -1;

  void FailAt(int64_t nth, FaultKind what) {
    operations = 0;
    kind = what;
    fail_at = nth;
  }
  void Stop() { fail_at = std::numeric_limits<int64_t>::max(); }
  bool has_failed() const { return operations >= fail_at; }
};

std::shared_ptr<rocksdb::FileSystem> NewFaultFileSystem(std::shared_ptr<FaultPlan> plan);

}  // namespace tessera

#endif  // TESSERA_STORAGE_FAULT_FILE_SYSTEM_H_
