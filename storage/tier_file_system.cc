#include "storage/tier_file_system.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "storage/aligned_buffer.h"

namespace tessera {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// Reads whole blocks around what is asked for.
class TableFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  explicit TableFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file)
      : FSRandomAccessFileOwnerWrapper(std::move(file)) {}

  IOStatus Read(uint64_t offset, size_t size, const IOOptions& options, Slice* result,
                char* scratch, IODebugContext* debug) const override {
    const int64_t begin = AlignDown(static_cast<int64_t>(offset));
    const int64_t aligned_size = AlignUp(static_cast<int64_t>(offset + size)) - begin;
    if (IsAligned(scratch) && begin == static_cast<int64_t>(offset) &&
        aligned_size == static_cast<int64_t>(size)) {
      return target()->Read(offset, size, options, result, scratch, debug);
    }
    const AlignedBuffer buffer(aligned_size);
    Slice read;
    IOStatus status = target()->Read(begin, aligned_size, options, &read,
                                     reinterpret_cast<char*>(buffer.data()), debug);
    if (!status.ok()) return status;
    const size_t skipped = std::min<size_t>(offset - begin, read.size());
    *result = Slice(scratch, std::min(size, read.size() - skipped));
    std::memcpy(scratch, read.data() + skipped, result->size());
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

IOStatus DeleteTree(rocksdb::FileSystem& file_system, const std::string& path) {
  std::vector<std::string> names;
  IOStatus status = file_system.GetChildren(path, {}, &names, nullptr);
  for (size_t i = 0; i < names.size() && status.ok(); ++i) {
    if (names[i] == "." || names[i] == "..") continue;
    status = file_system.DeleteFile(path + "/" + names[i], {}, nullptr);
  }
  return status.ok() ? file_system.DeleteDir(path, {}, nullptr) : status;
}

}  // namespace

TierFileSystem::TierFileSystem(std::shared_ptr<rocksdb::FileSystem> base,
                               const TierFileOptions& options)
    : FileSystemWrapper(base),
      options_(options),
      staging_prefix_(options.staging_path + "/"),
      databases_prefix_(options.databases_path + "/"),
      // Whoever deletes does not wait.
      delete_threads_(1, std::numeric_limits<int>::max()) {}

IOStatus TierFileSystem::NewWritableFile(const std::string& path, const FileOptions& file_options,
                                         std::unique_ptr<rocksdb::FSWritableFile>* result,
                                         IODebugContext* debug) {
  if (!absl::StartsWith(path, staging_prefix_)) {
    return target()->NewWritableFile(path, file_options, result, debug);
  }
  FileOptions changed = file_options;
  changed.use_direct_writes = options_.staged.direct_io;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  IOStatus status = target()->NewWritableFile(path, changed, &file, debug);
  if (status.ok()) *result = std::make_unique<StagedFile>(std::move(file), options_.staged);
  return status;
}

IOStatus TierFileSystem::NewRandomAccessFile(const std::string& path,
                                             const FileOptions& file_options,
                                             std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                             IODebugContext* debug) {
  if (!options_.staged.direct_io || !absl::EndsWith(path, ".sst")) {
    return target()->NewRandomAccessFile(path, file_options, result, debug);
  }
  FileOptions changed = file_options;
  changed.use_direct_reads = true;
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  IOStatus status = target()->NewRandomAccessFile(path, changed, &file, debug);
  if (status.ok()) *result = std::make_unique<TableFile>(std::move(file));
  return status;
}

IOStatus TierFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                    IODebugContext* debug) {
  if (!absl::StartsWith(path, databases_prefix_)) {
    return target()->DeleteFile(path, options, debug);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!changing_prefix_.empty() && absl::StartsWith(path, changing_prefix_)) {
      held_.push_back(path);
      return IOStatus::OK();
    }
  }
  Enqueue({path, false});
  return IOStatus::OK();
}

void TierFileSystem::Enqueue(Delete what) {
  deletes_.Add();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(what));
  }
  delete_threads_.Run([this] { DeleteNext(); });
}

void TierFileSystem::DeleteNext() {
  Delete next;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.empty()) return;  // forgotten
    next = std::move(queue_.front());
    queue_.pop_front();
    deleting_ = next.path;
  }
  const IOStatus status = next.is_folder ? DeleteTree(*target(), next.path)
                                         : target()->DeleteFile(next.path, {}, nullptr);
  status.PermitUncheckedError();  // what stays goes when the store is next opened
  {
    std::lock_guard<std::mutex> lock(mutex_);
    deleting_.clear();
    has_deleted_.notify_all();
  }
  deletes_.Done();
}

void TierFileSystem::ForgetDeletes(const std::string& folder) {
  const std::string prefix = folder + "/";
  std::unique_lock<std::mutex> lock(mutex_);
  const size_t forgotten = std::erase_if(
      queue_, [&](const Delete& what) { return absl::StartsWith(what.path, prefix); });
  has_deleted_.wait(lock, [&] { return !absl::StartsWith(deleting_, prefix); });
  lock.unlock();
  for (size_t i = 0; i < forgotten; ++i) deletes_.Done();
}

void TierFileSystem::DeleteFolder(const std::string& path) { Enqueue({path, true}); }

void TierFileSystem::BeginChange(const std::string& database_path) {
  std::lock_guard<std::mutex> lock(mutex_);
  changing_prefix_ = database_path + "/";
}

void TierFileSystem::EndChange(bool is_done) {
  std::vector<std::string> paths;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    changing_prefix_.clear();
    paths = std::exchange(held_, {});
  }
  if (!is_done) return;
  for (const std::string& path : paths) DeleteFile(path, {}, nullptr).PermitUncheckedError();
}

}  // namespace tessera
