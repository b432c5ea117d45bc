#include "storage/staged_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// What is copied between large values comes in small pieces.
constexpr int64_t kLeastBufferBytes = 64 << 10;

// RocksDB's interface gives an append no way to say more than its bytes but the thread it is on.
thread_local AppendTwin* next_twin = nullptr;

Slice AsSlice(const uint8_t* data, int64_t size) {
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(size)};
}

}  // namespace

ScopedAppendTwin::ScopedAppendTwin(AppendTwin* twin) { next_twin = twin; }
ScopedAppendTwin::~ScopedAppendTwin() { next_twin = nullptr; }

StagedFile::StagedFile(std::unique_ptr<rocksdb::FSWritableFile> file, const Options& options)
    : options_(options), file_(std::move(file)) {}

StagedFile::~StagedFile() {
  std::unique_lock<std::mutex> lock(mutex_);
  has_changed_.wait(lock, [this] { return !is_writing_; });
}

IOStatus StagedFile::Append(const Slice& data, const IOOptions&, IODebugContext*) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
  }
  if (has_ended_) return IOStatus::NotSupported("append after the end of the file");
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data.data()), data.size());
  AppendTwin* twin = next_twin;
  if (twin == nullptr || !twin->done || bytes.size() < twin->bytes.size() + twin->tail_bytes) {
    Copy(bytes);
    return IOStatus::OK();
  }
  const int64_t head_bytes =
      static_cast<int64_t>(bytes.size() - twin->bytes.size()) - twin->tail_bytes;
  if (AlignUp(offset_ + used_ + head_bytes) != offset_ + used_ + head_bytes) {
    Copy(bytes);
    return IOStatus::OK();
  }
  Copy(bytes.first(head_bytes));
  if (used_ > 0) SubmitCopied(used_);
  Piece piece;
  piece.offset = offset_;
  piece.data = AsSlice(twin->bytes.data(), AlignDown(static_cast<int64_t>(twin->bytes.size())));
  piece.done = std::exchange(twin->done, nullptr);
  const int64_t written = static_cast<int64_t>(piece.data.size());
  offset_ += written;
  Submit(std::move(piece));
  Copy(bytes.subspan(head_bytes + written));
  return IOStatus::OK();
}

void StagedFile::Copy(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (buffer_.size_bytes() == 0) {
      buffer_ = AlignedBuffer(std::clamp(static_cast<int64_t>(bytes.size()), kLeastBufferBytes,
                                         std::max(kLeastBufferBytes, options_.write_buffer_bytes)));
    }
    const size_t size = std::min<size_t>(bytes.size(), buffer_.size_bytes() - used_);
    std::memcpy(buffer_.data() + used_, bytes.data(), size);
    used_ += static_cast<int64_t>(size);
    bytes.remove_prefix(size);
    if (used_ == buffer_.size_bytes()) SubmitCopied(used_);
  }
}

void StagedFile::SubmitCopied(int64_t size) {
  Piece piece;
  piece.offset = offset_;
  piece.own = std::exchange(buffer_, AlignedBuffer());
  piece.data = AsSlice(piece.own.data(), size);
  offset_ += used_;
  used_ = 0;
  Submit(std::move(piece));
}

void StagedFile::Submit(Piece piece) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t own_bytes = piece.own.size_bytes();
  has_changed_.wait(lock,
                    [&] { return own_bytes == 0 || own_bytes_ <= options_.write_buffer_bytes; });
  own_bytes_ += own_bytes;
  pieces_.push_back(std::move(piece));
  if (std::exchange(is_writing_, true)) return;
  lock.unlock();
  options_.threads->Run([this] { WritePieces(); });
}

void StagedFile::WritePieces() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!pieces_.empty()) {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    IOStatus status = status_;
    lock.unlock();
    if (status.ok()) {
      status = options_.direct_io ? file_->PositionedAppend(piece.data, piece.offset, {}, nullptr)
                                  : file_->Append(piece.data, {}, nullptr);
    }
    if (piece.done) piece.done(status);
    lock.lock();
    own_bytes_ -= piece.own.size_bytes();
    if (status_.ok()) status_ = status;
    has_changed_.notify_all();
  }
  // Notified under the lock: whoever waits may destroy this object next.
  is_writing_ = false;
  has_changed_.notify_all();
}

// Direct writes are of whole blocks, so the last one goes beyond the end, which is then put right.
IOStatus StagedFile::WriteEnd(const IOOptions& options, IODebugContext* debug) {
  const int64_t end = offset_ + used_;
  const bool is_padded = options_.direct_io && AlignUp(used_) != used_;
  if (used_ > 0) {
    const int64_t size = is_padded ? AlignUp(used_) : used_;
    std::memset(buffer_.data() + used_, 0, size - used_);
    SubmitCopied(size);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  has_changed_.wait(lock, [this] { return !is_writing_; });
  if (status_.ok() && is_padded) status_ = file_->Truncate(end, options, debug);
  has_ended_ = true;
  return status_;
}

IOStatus StagedFile::Sync(const IOOptions& options, IODebugContext* debug) {
  IOStatus status = WriteEnd(options, debug);
  return status.ok() ? file_->Sync(options, debug) : status;
}

IOStatus StagedFile::Fsync(const IOOptions& options, IODebugContext* debug) {
  IOStatus status = WriteEnd(options, debug);
  return status.ok() ? file_->Fsync(options, debug) : status;
}

IOStatus StagedFile::Close(const IOOptions& options, IODebugContext* debug) {
  IOStatus status = WriteEnd(options, debug);
  IOStatus closed = file_->Close(options, debug);
  return status.ok() ? closed : status;
}

}  // namespace tessera
