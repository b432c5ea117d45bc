// A step on its way into the nvme tier.
#ifndef TESSERA_STORAGE_TIER_STEP_WRITER_H_
#define TESSERA_STORAGE_TIER_STEP_WRITER_H_

#include <rocksdb/env.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "storage/io_threads.h"
#include "storage/tier_file_builder.h"
#include "storage/tier_store.h"
#include "storage/tier_value.h"

namespace tessera {

// What a step writer needs of its store.
struct TierStaging {
  std::string error_prefix;  // "FOLDER: job J step S"
  std::string step_prefix;   // of keys
  std::string path_prefix;   // of files in the staging folder, no other writer's
  rocksdb::Env* env = nullptr;
  IoThreads* threads = nullptr;  // that build files; others write them
  int max_values = 1;            // being written
  int max_files = 1;             // being built
  int64_t file_bytes = 0;
  // Makes finished files and their record a committed step, or nothing.
  std::function<absl::Status(const std::vector<std::string>& paths, TierStepRecord record)> commit;
  // Bytes of a value have been written to a file.
  std::function<void(int64_t bytes)> on_written;
  // The writer is gone, and so are its files.
  std::function<void()> on_end;
};

// Values go round several files, so that as many are written at a time; a thread takes a file that
// no other uses. A file that is large enough is finished while others are written.
class StagedTierStep : public TierStepWriter {
 public:
  explicit StagedTierStep(TierStaging staging);
  ~StagedTierStep() override;

  absl::Status StartWrite(const std::string& unit, const std::string& kind, int64_t begin,
                          DType dtype, std::vector<int64_t> shape, absl::Span<const uint8_t> bytes,
                          TierDone done) override;
  absl::Status Commit(absl::string_view metadata) override;

 private:
  // Calls done once.
  absl::Status Build(TierValueHeader header, absl::Span<const uint8_t> bytes, const TierDone& done);
  absl::StatusOr<std::unique_ptr<TierFileBuilder>> TakeFile();
  absl::Status FinishAll();
  absl::Status status() const;
  // Keeps the first error; returns `status` with the step's name before it.
  absl::Status Note(const absl::Status& status, absl::string_view what);

  const TierStaging staging_;
  PendingCount builds_, values_;  // the latter until they are written
  mutable std::mutex mutex_;
  absl::Status status_;                                            // guarded by mutex_
  std::set<std::tuple<std::string, std::string, int64_t>> names_;  // guarded by mutex_
  std::deque<std::unique_ptr<TierFileBuilder>> idle_files_;        // guarded by mutex_
  int open_files_ = 0;              // idle, or at work; guarded by mutex_
  std::vector<std::string> paths_;  // ever made; guarded by mutex_
  TierStepRecord record_;           // guarded by mutex_
  bool is_committed_ = false;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_STEP_WRITER_H_
