// The store behind storage/tier_store.h.
#ifndef TESSERA_STORAGE_TIER_STORE_IMPL_H_
#define TESSERA_STORAGE_TIER_STORE_IMPL_H_

#include <rocksdb/env.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/io_threads.h"
#include "storage/tier_database.h"
#include "storage/tier_file_system.h"
#include "storage/tier_store.h"
#include "storage/tier_value.h"

namespace tessera {

// FOLDER/jobs/JOB is RocksDB's, one for each job; FOLDER/staging has the files of steps that are
// being written, and folders of dropped jobs, and is emptied at Open; FOLDER/LOCK is held.
//
// Every change of a database ends in one of two ways: it went well, or the database is opened
// anew and what it then holds is the truth (Repair). That is the one way of recovery, from errors
// as from the death of the process.
class TierStoreImpl : public TierStore {
 public:
  explicit TierStoreImpl(const TierStoreOptions& options);
  ~TierStoreImpl() override;
  absl::Status Init();

  std::vector<TierStep> steps() const override;
  std::vector<std::string> jobs() const override;
  std::vector<TierBrokenJob> broken() const override;
  absl::StatusOr<std::vector<TierValueHeader>> Values(absl::string_view job,
                                                      int64_t step) const override;
  absl::StatusOr<std::unique_ptr<TierStepWriter>> BeginStep(absl::string_view job, int64_t step,
                                                            int64_t expected_bytes) override;
  absl::Status CheckSpace(int64_t bytes) const override;
  int64_t free_bytes() const override;
  absl::Status StartRead(const TierKey& key, DType dtype, int64_t num_elements,
                         absl::Span<uint8_t> to, TierDone done) override;
  absl::Status DropStep(absl::string_view job, int64_t step) override;
  absl::Status DropJob(absl::string_view job) override;
  TierStats stats() const override;

 private:
  // A file of values; opened by the first read of it, and kept open.
  class ValueFile {
   public:
    explicit ValueFile(std::string path) : path_(std::move(path)) {}
    absl::Status Read(rocksdb::FileSystem& file_system, int64_t offset, absl::Span<uint8_t> to);

   private:
    absl::StatusOr<const rocksdb::FSRandomAccessFile*> Open(rocksdb::FileSystem& file_system);

    const std::string path_;
    std::mutex mutex_;
    std::unique_ptr<rocksdb::FSRandomAccessFile> file_;  // guarded by mutex_, as a pointer
  };
  // A committed step. Immutable, but for which files are open.
  struct Step {
    TierStepRecord record;
    int64_t bytes = 0;
    std::map<std::tuple<std::string, std::string, int64_t>, size_t> index;  // into record.values
    mutable std::map<uint32_t, ValueFile> files;                            // by number
  };
  using Paths = std::map<TierStepName, std::map<uint32_t, std::string>>;
  static absl::StatusOr<Paths> PathsOf(const TierDatabase& database);
  static std::shared_ptr<const Step> MakeStep(TierStepRecord record,
                                              const std::map<uint32_t, std::string>& paths);
  std::shared_ptr<const Step> FindStep(const TierStepName& name) const;
  std::string Describe(const TierStepName& name) const;

  // That the step is not committed, or how the job is broken.
  absl::Status WhyNoStep(const std::string& job) const;
  int64_t NumSteps(const std::string& job) const;
  std::string PathOf(const std::string& job) const;
  std::string NewStagingPath();

  // --- of changes, with change_mutex_ held
  absl::Status OpenJobs();
  // Deletes what an earlier process has left; whole folders soon.
  absl::Status EmptyStaging();
  // Makes the job's folder where there is none, durably.
  absl::Status EnsureFolder(const std::string& job);
  // A database without an error, opened anew where there is none.
  absl::Status EnsureDatabase(const std::string& job);
  // Opens the database anew, drops what no record names, and takes its steps over.
  absl::Status Repair(const std::string& job);
  absl::Status Load(const std::string& job, TierDatabase& database);
  // Runs a change of the job's database, which is open; after an error closes it.
  absl::Status Change(const std::string& job,
                      absl::FunctionRef<absl::Status(TierDatabase& database)> change);
  absl::Status Commit(const TierStepName& name, const std::vector<std::string>& paths,
                      TierStepRecord record);
  // A step of several.
  absl::Status DropOneOf(const TierStepName& name);
  // Takes the job's folder away, as one change. OK if there is none.
  absl::Status RemoveJob(const std::string& job);

  // On a read thread.
  absl::Status ReadValue(const Step& step, const TierStepRecord::Value& value,
                         absl::Span<uint8_t> to);
  // On a verify thread.
  absl::Status Verify(const TierStepRecord::Value& value, absl::Span<uint8_t> to);

  const TierStoreOptions options_;
  const std::string jobs_path_, staging_path_;
  IoThreads write_threads_;
  const std::shared_ptr<TierFileSystem> file_system_;
  const std::unique_ptr<rocksdb::Env> env_;
  rocksdb::FileLock* lock_ = nullptr;

  // Locks are taken in this order.
  std::mutex change_mutex_;
  // By job; none after an error. Guarded by change_mutex_.
  std::map<std::string, std::unique_ptr<TierDatabase>> databases_;
  std::set<TierStepName> doomed_;  // guarded by change_mutex_: Commit failed, and Repair
  mutable std::mutex mutex_;
  std::map<TierStepName, std::shared_ptr<const Step>> steps_;  // guarded by mutex_
  std::map<std::string, absl::Status> broken_;                 // by job; guarded by mutex_
  std::map<TierStepName, int64_t> expected_;  // bytes still to be written; guarded by mutex_
  int64_t next_staging_ = 0;                  // guarded by mutex_
  TierStats stats_;                           // guarded by mutex_

  // Last, so that their work is done before anything else goes.
  PendingCount reads_;
  IoThreads build_threads_, verify_threads_, read_threads_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_STORE_IMPL_H_
