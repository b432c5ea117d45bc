#include "storage/tier_file_system.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

namespace tessera {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// RocksDB's interface gives a read no way to say where it belongs but the thread that it is on.
thread_local AlignedBuffer* next_read_buffer = nullptr;
thread_local size_t next_read_bytes = 0;

// Takes appends of any size into an aligned buffer, and writes it when it is full. RocksDB is told
// that this is no direct file, so that it hands over whole blocks without copying them.
class StagedFile : public rocksdb::FSWritableFile {
 public:
  StagedFile(std::unique_ptr<rocksdb::FSWritableFile> file, const TierFileOptions& options)
      : direct_io_(options.direct_io),
        file_(std::move(file)),
        buffer_(options.write_buffer_bytes) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    if (is_padded_) return IOStatus::NotSupported("append after the end of the file was written");
    const char* from = data.data();
    size_t left = data.size();
    while (left > 0) {
      const size_t size = std::min<size_t>(left, buffer_.size_bytes() - used_);
      std::memcpy(buffer_.data() + used_, from, size);
      used_ += size;
      from += size;
      left -= size;
      if (used_ < buffer_.size_bytes()) break;
      IOStatus status = WriteBuffer(used_, options, debug);
      if (!status.ok()) return status;
      offset_ += used_;
      used_ = 0;
    }
    return IOStatus::OK();
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = WriteEnd(options, debug);
    return status.ok() ? file_->Sync(options, debug) : status;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = WriteEnd(options, debug);
    return status.ok() ? file_->Fsync(options, debug) : status;
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = WriteEnd(options, debug);
    IOStatus closed = file_->Close(options, debug);
    return status.ok() ? closed : status;
  }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return offset_ + used_; }

 private:
  IOStatus WriteBuffer(int64_t size, const IOOptions& options, IODebugContext* debug) {
    const Slice slice(reinterpret_cast<const char*>(buffer_.data()), size);
    return direct_io_ ? file_->PositionedAppend(slice, offset_, options, debug)
                      : file_->Append(slice, options, debug);
  }
  // Direct writes are of whole blocks, so the last one goes beyond the end, which is then put
  // right.
  IOStatus WriteEnd(const IOOptions& options, IODebugContext* debug) {
    if (is_padded_ || used_ == 0) return IOStatus::OK();
    const int64_t padded = direct_io_ ? AlignUp(used_) : used_;
    std::memset(buffer_.data() + used_, 0, padded - used_);
    IOStatus status = WriteBuffer(padded, options, debug);
    if (status.ok() && padded > used_) status = file_->Truncate(offset_ + used_, options, debug);
    if (status.ok()) is_padded_ = true;
    return status;
  }

  const bool direct_io_;
  const std::unique_ptr<rocksdb::FSWritableFile> file_;
  AlignedBuffer buffer_;
  int64_t offset_ = 0;  // in the file, of the buffer
  int64_t used_ = 0;    // of the buffer
  bool is_padded_ = false;
};

// Reads whole blocks around what is asked for.
class TableFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  explicit TableFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file)
      : FSRandomAccessFileOwnerWrapper(std::move(file)) {}

  IOStatus Read(uint64_t offset, size_t size, const IOOptions& options, Slice* result,
                char* scratch, IODebugContext* debug) const override {
    const int64_t begin = AlignDown(static_cast<int64_t>(offset));
    const int64_t aligned_size = AlignUp(static_cast<int64_t>(offset + size)) - begin;
    const bool is_borrowed = next_read_buffer != nullptr && size >= next_read_bytes;
    AlignedBuffer own;
    AlignedBuffer* buffer = is_borrowed ? std::exchange(next_read_buffer, nullptr) : &own;
    buffer->Grow(aligned_size);
    Slice read;
    IOStatus status = target()->Read(begin, aligned_size, options, &read,
                                     reinterpret_cast<char*>(buffer->data()), debug);
    if (!status.ok()) return status;
    const size_t skipped = std::min<size_t>(offset - begin, read.size());
    *result = Slice(read.data() + skipped, std::min(size, read.size() - skipped));
    if (!is_borrowed) {
      std::memcpy(scratch, result->data(), result->size());
      *result = Slice(scratch, result->size());
    }
    return status;
  }
  IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override {
    return FSRandomAccessFile::MultiRead(requests, count, options, debug);
  }
  IOStatus ReadAsync(rocksdb::FSReadRequest& request, const IOOptions& options,
                     std::function<void(const rocksdb::FSReadRequest&, void*)> done, void* argument,
                     void** handle, rocksdb::IOHandleDeleter* deleter,
                     IODebugContext* debug) override {
    return FSRandomAccessFile::ReadAsync(request, options, std::move(done), argument, handle,
                                         deleter, debug);
  }
  IOStatus Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported("Prefetch");
  }
  bool use_direct_io() const override { return false; }
};

class TierFileSystem : public rocksdb::FileSystemWrapper {
 public:
  TierFileSystem(std::shared_ptr<rocksdb::FileSystem> base, const TierFileOptions& options)
      : FileSystemWrapper(base), options_(options), staging_prefix_(options.staging_path + "/") {}
  const char* Name() const override { return "TesseraTierFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& file_options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext* debug) override {
    if (!absl::StartsWith(path, staging_prefix_)) {
      return target()->NewWritableFile(path, file_options, result, debug);
    }
    FileOptions changed = file_options;
    changed.use_direct_writes = options_.direct_io;
    std::unique_ptr<rocksdb::FSWritableFile> file;
    IOStatus status = target()->NewWritableFile(path, changed, &file, debug);
    if (status.ok()) *result = std::make_unique<StagedFile>(std::move(file), options_);
    return status;
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& file_options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext* debug) override {
    if (!options_.direct_io || !absl::EndsWith(path, ".sst")) {
      return target()->NewRandomAccessFile(path, file_options, result, debug);
    }
    FileOptions changed = file_options;
    changed.use_direct_reads = true;
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    IOStatus status = target()->NewRandomAccessFile(path, changed, &file, debug);
    if (status.ok()) *result = std::make_unique<TableFile>(std::move(file));
    return status;
  }

 private:
  const TierFileOptions options_;
  const std::string staging_prefix_;
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> NewTierFileSystem(std::shared_ptr<rocksdb::FileSystem> base,
                                                       const TierFileOptions& options) {
  return std::make_shared<TierFileSystem>(std::move(base), options);
}

ScopedReadBuffer::ScopedReadBuffer(AlignedBuffer* buffer, int64_t size_bytes) {
  next_read_buffer = buffer;
  next_read_bytes = static_cast<size_t>(size_bytes);
}

ScopedReadBuffer::~ScopedReadBuffer() { next_read_buffer = nullptr; }

}  // namespace tessera
