#include "storage/fault_file_system.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace tessera {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// Whether RocksDB's log of messages, whose lines nobody misses.
bool IsLog(const std::string& path) {
  const size_t slash = path.rfind('/');
  return path.compare(slash + 1, 3, "LOG") == 0;
}

IOStatus Error(FaultKind kind, const std::string& path) {
  return kind == FaultKind::kNoSpace ? IOStatus::NoSpace(path, "injected")
                                     : IOStatus::IOError(path, "injected");
}

class Faults {
 public:
  explicit Faults(std::shared_ptr<FaultPlan> plan) : plan_(std::move(plan)) {}

  // Runs an operation, or fails it. half: a part of it that may be done as well.
  IOStatus Run(const std::string& path, const std::function<IOStatus()>& all,
               const std::function<IOStatus()>& half = nullptr) const {
    if (IsLog(path)) return all();
    const int64_t nth = plan_->operations.fetch_add(1) + 1;
    const int64_t fail_at = plan_->fail_at;
    if (nth != fail_at && !(plan_->fails_on && nth > fail_at)) return all();
    const FaultKind kind = plan_->kind;
    if (kind == FaultKind::kLate) all().PermitUncheckedError();
    if ((kind == FaultKind::kShortWrite || kind == FaultKind::kKill) && half) {
      half().PermitUncheckedError();
    }
    if (kind == FaultKind::kKill) kill(getpid(), SIGKILL);
    return Error(kind, path);
  }
  IOStatus Write(const std::string& path, const Slice& data,
                 const std::function<IOStatus(Slice)>& write) const {
    if (IsLog(path)) return write(data);
    if (plan_->quota_bytes.fetch_sub(data.size()) < static_cast<int64_t>(data.size())) {
      return Error(FaultKind::kNoSpace, path);
    }
    return Run(
        path, [&] { return write(data); },
        // Whole blocks, where there are several: the file may be direct.
        [&] {
          const size_t part = data.size() / 2;
          return write(Slice(data.data(), part < 4096 ? part : part / 4096 * 4096));
        });
  }
  FaultPlan& plan() const { return *plan_; }

 private:
  const std::shared_ptr<FaultPlan> plan_;
};

class FaultyWritableFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyWritableFile(std::unique_ptr<rocksdb::FSWritableFile> file, std::string path, Faults faults)
      : FSWritableFileOwnerWrapper(std::move(file)),
        path_(std::move(path)),
        faults_(std::move(faults)) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    return faults_.Write(path_, data,
                         [&](Slice part) { return target()->Append(part, options, debug); });
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* debug) override {
    return faults_.Write(path_, data, [&](Slice part) {
      // Less than a block cannot be written directly.
      if (target()->use_direct_io() && part.size() % 4096 != 0) return IOStatus::OK();
      return target()->PositionedAppend(part, offset, options, debug);
    });
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    return faults_.Run(path_, [&] { return target()->Truncate(size, options, debug); });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return faults_.Run(path_, [&] { return target()->Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return faults_.Run(path_, [&] { return target()->Fsync(options, debug); });
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return faults_.Run(path_, [&] { return target()->Close(options, debug); });
  }

 private:
  const std::string path_;
  const Faults faults_;
};

class FaultyRandomAccessFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultyRandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file, std::string path,
                         Faults faults)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        path_(std::move(path)),
        faults_(std::move(faults)) {}

  IOStatus Read(uint64_t offset, size_t size, const IOOptions& options, Slice* result,
                char* scratch, IODebugContext* debug) const override {
    const auto read = [&] { return target()->Read(offset, size, options, result, scratch, debug); };
    return faults_.plan().counts_reads ? faults_.Run(path_, read) : read();
  }

 private:
  const std::string path_;
  const Faults faults_;
};

class FaultyDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  FaultyDirectory(std::unique_ptr<rocksdb::FSDirectory> directory, std::string path, Faults faults)
      : FSDirectoryWrapper(std::move(directory)),
        path_(std::move(path)),
        faults_(std::move(faults)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return faults_.Run(path_, [&] { return FSDirectoryWrapper::Fsync(options, debug); });
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& what) override {
    return faults_.Run(
        path_, [&] { return FSDirectoryWrapper::FsyncWithDirOptions(options, debug, what); });
  }

 private:
  const std::string path_;
  const Faults faults_;
};

class FaultFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultFileSystem(std::shared_ptr<FaultPlan> plan)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), faults_(std::move(plan)) {}
  const char* Name() const override { return "TesseraFaultFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext* debug) override {
    return Wrap<FaultyWritableFile>(path, result, [&](auto* file) {
      return target()->NewWritableFile(path, options, file, debug);
    });
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                              IODebugContext* debug) override {
    return Wrap<FaultyWritableFile>(path, result, [&](auto* file) {
      return target()->ReopenWritableFile(path, options, file, debug);
    });
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    IOStatus status = target()->NewRandomAccessFile(path, options, &file, debug);
    if (status.ok()) {
      *result = std::make_unique<FaultyRandomAccessFile>(std::move(file), path, faults_);
    }
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result,
                        IODebugContext* debug) override {
    return Wrap<FaultyDirectory>(path, result, [&](auto* directory) {
      return target()->NewDirectory(path, options, directory, debug);
    });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    return faults_.Run(to, [&] { return target()->RenameFile(from, to, options, debug); });
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* debug) override {
    return faults_.Run(to, [&] { return target()->LinkFile(from, to, options, debug); });
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* debug) override {
    return faults_.Run(path, [&] { return target()->DeleteFile(path, options, debug); });
  }
  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options,
                    IODebugContext* debug) override {
    return faults_.Run(path, [&] { return target()->Truncate(path, size, options, debug); });
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options, uint64_t* free,
                        IODebugContext* debug) override {
    const int64_t told = faults_.plan().free_bytes;
    if (told < 0) return target()->GetFreeSpace(path, options, free, debug);
    *free = static_cast<uint64_t>(told);
    return IOStatus::OK();
  }

 private:
  template <typename Faulty, typename Result, typename Open>
  IOStatus Wrap(const std::string& path, Result* result, const Open& open) {
    Result inner;
    IOStatus status = faults_.Run(path, [&] { return open(&inner); });
    if (status.ok()) *result = std::make_unique<Faulty>(std::move(inner), path, faults_);
    return status;
  }

  const Faults faults_;
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> NewFaultFileSystem(std::shared_ptr<FaultPlan> plan) {
  return std::make_shared<FaultFileSystem>(std::move(plan));
}

}  // namespace tessera
