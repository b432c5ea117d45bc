// A new file that is appended to by one thread and written by others.
#ifndef TESSERA_STORAGE_STAGED_FILE_H_
#define TESSERA_STORAGE_STAGED_FILE_H_

#include <rocksdb/file_system.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/types/span.h"
#include "storage/aligned_buffer.h"
#include "storage/io_threads.h"

namespace tessera {

// Memory that holds the same bytes as an append that RocksDB is about to make ends with, but for
// `tail_bytes`; it can be written from where it is, and so needs no copy.
struct AppendTwin {
  absl::Span<const uint8_t> bytes;  // aligned for direct IO
  int64_t tail_bytes = 0;
  // Called once, on any thread, when `bytes` are no longer read; null after the append took it.
  std::function<void(const rocksdb::IOStatus&)> done;
};

// While it lives, this thread's next append to a staged file may take the twin: it does where the
// sizes say that it is the append that is meant, and where the bytes lie in the file so that they
// can be written directly.
class ScopedAppendTwin {
 public:
  explicit ScopedAppendTwin(AppendTwin* twin);
  ~ScopedAppendTwin();
  ScopedAppendTwin(const ScopedAppendTwin&) = delete;
  ScopedAppendTwin& operator=(const ScopedAppendTwin&) = delete;
};

// Writes in the order of the appends, one at a time, on `threads`: several files together keep a
// disk's queue full. RocksDB is told that this is no direct file, so that it hands over whole
// blocks without copying them. Only one thread calls it.
class StagedFile : public rocksdb::FSWritableFile {
 public:
  struct Options {
    bool direct_io = true;
    // Of each write of what has to be copied; twice as much may wait.
    int64_t write_buffer_bytes = 0;
    IoThreads* threads = nullptr;
  };
  StagedFile(std::unique_ptr<rocksdb::FSWritableFile> file, const Options& options);
  // Waits for what is being written.
  ~StagedFile() override;

  // An error of an earlier write is returned by any later call.
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo&,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  rocksdb::IOStatus Flush(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
  // Ends the file: no append may follow.
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override;
  uint64_t GetFileSize(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return offset_ + used_;
  }

 private:
  struct Piece {
    int64_t offset = 0;
    rocksdb::Slice data;
    AlignedBuffer own;  // if it holds the data
    std::function<void(const rocksdb::IOStatus&)> done;
  };
  void Copy(absl::Span<const uint8_t> bytes);
  // Writes what has been copied, of which only whole blocks where the file is not at its end.
  void SubmitCopied(int64_t size);
  void Submit(Piece piece);
  void WritePieces();
  rocksdb::IOStatus WriteEnd(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug);

  const Options options_;
  const std::unique_ptr<rocksdb::FSWritableFile> file_;
  AlignedBuffer buffer_;
  int64_t offset_ = 0;  // in the file, of the buffer
  int64_t used_ = 0;    // of the buffer
  bool has_ended_ = false;

  std::mutex mutex_;
  std::condition_variable has_changed_;
  std::deque<Piece> pieces_;  // guarded by mutex_
  int64_t own_bytes_ = 0;     // of pieces that hold their data; guarded by mutex_
  bool is_writing_ = false;   // guarded by mutex_
  rocksdb::IOStatus status_;  // first error; guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_STAGED_FILE_H_
