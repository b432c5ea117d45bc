// How RocksDB's files of values reach the disk: large direct writes and reads, around its buffers.
#ifndef TESSERA_STORAGE_TIER_FILE_SYSTEM_H_
#define TESSERA_STORAGE_TIER_FILE_SYSTEM_H_

#include <rocksdb/file_system.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/io_threads.h"
#include "storage/staged_file.h"

namespace tessera {

struct TierFileOptions {
  // Files that are made in this folder are StagedFiles; all others are as `base` makes them.
  std::string staging_path;
  StagedFile::Options staged;
  // Databases lie in folders of it.
  std::string databases_path;
};

// Forwards to base. Where direct_io is on, every table file (*.sst) is read directly; reads into
// aligned memory, of aligned ranges, are not copied. Thread-safe.
class TierFileSystem : public rocksdb::FileSystemWrapper {
 public:
  TierFileSystem(std::shared_ptr<rocksdb::FileSystem> base, const TierFileOptions& options);
  const char* Name() const override { return "TesseraTierFileSystem"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path,
                                    const rocksdb::FileOptions& file_options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& file_options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                        rocksdb::IODebugContext* debug) override;
  // Of files of a database: when EndChange says, on a thread, since a disk may take long to free
  // space. What an error keeps, the database deletes when it is next opened.
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;

  // Between the two the database in this folder deletes no file. When the write of a manifest
  // fails, RocksDB deletes the new files, though the manifest may have come to name them all the
  // same; that database could not be opened again. REQUIRES: calls alternate.
  void BeginChange(const std::string& database_path);
  // is_done: what was to be deleted is. Else it stays, for the database that is opened next to
  // keep or delete.
  void EndChange(bool is_done);

  // Deletes a folder, and what lies in it, soon.
  void DeleteFolder(const std::string& path);
  // What was to be deleted in this folder no longer is: it goes with the folder, and a later one of
  // this name may have files of the same names.
  void ForgetDeletes(const std::string& folder);

  // Until what was to be deleted is, and its space free, but for files that somebody reads.
  void WaitForDeletes() const { deletes_.Wait(); }

 private:
  const TierFileOptions options_;
  const std::string staging_prefix_, databases_prefix_;
  std::mutex mutex_;
  std::string changing_prefix_;    // empty: none; guarded by mutex_
  std::vector<std::string> held_;  // to be deleted; guarded by mutex_
  struct Delete {
    std::string path;
    bool is_folder = false;
  };
  void Enqueue(Delete what);
  void DeleteNext();

  std::condition_variable has_deleted_;
  std::deque<Delete> queue_;  // guarded by mutex_
  std::string deleting_;      // guarded by mutex_; empty: nothing
  mutable PendingCount deletes_;
  IoThreads delete_threads_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_FILE_SYSTEM_H_
