// The nvme tier of one worker process: the state of jobs, committed step by step, in RocksDB.
#ifndef TESSERA_STORAGE_TIER_STORE_H_
#define TESSERA_STORAGE_TIER_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "storage/tier_value.h"

namespace rocksdb {
class FileSystem;
}

namespace tessera {

struct TierStoreOptions {
  // Folder of this process alone; made if absent.
  std::string path;
  // Of the file system, left free.
  int64_t reserve_bytes = int64_t{1} << 28;
  // Values being written, and read, at a time; as many again may wait.
  int write_depth = 8, read_depth = 8;
  // Of them, values being checksummed and handed to RocksDB, which keeps the processor busy and
  // takes memory of about twice the value's size. As many threads verify what was read.
  int build_threads = 2;
  // Values whose memory is not aligned (kDirectIoAlignment) are copied on their way: through so
  // much for each of write_depth files when written, a value for each of read_depth when read.
  int64_t write_buffer_bytes = int64_t{1} << 20;
  // A step is cut into at most write_depth files at a time, of about as many bytes each.
  int64_t min_file_bytes = int64_t{1} << 24, file_bytes = int64_t{1} << 28;
  // Values bypass the page cache. Open fails where the file system cannot.
  bool direct_io = true;
  // What files are made with; null: the system's. Tests put a file system that fails here.
  std::shared_ptr<rocksdb::FileSystem> file_system;
};

// A committed step.
struct TierStep {
  std::string job;
  int64_t step = 0;
  int64_t bytes = 0;  // of its values
  std::string metadata;
};

// A job whose state is there, but cannot be used: an index, not a value.
struct TierBrokenJob {
  std::string job;
  absl::Status status;  // DATA_LOSS: it is damaged. UNAVAILABLE: it cannot be read.
};

// Since Open, but for resident_bytes.
struct TierStats {
  int64_t written_bytes = 0, read_bytes = 0;  // of values
  int64_t resident_bytes = 0;                 // of values of committed steps
  int64_t committed_steps = 0, dropped_steps = 0;
  int64_t repairs = 0;  // times that a database had to be opened again after an error
};

// Called once, on a thread of the store, when the caller's memory is its own again. Must not call
// the store or a writer, nor destroy them.
using TierDone = std::function<void(absl::Status)>;

// One step of one job being written. Thread-safe, but for Commit, which is the last call.
// Destroyed without Commit, nothing of the step stays. Must not outlive its store.
class TierStepWriter {
 public:
  virtual ~TierStepWriter() = default;

  // Starts writing a value whose elements are `bytes`, which stay valid and unchanged until done.
  // Blocks only while write_depth values wait. On an error that it returns, done is not called;
  // else it is (where it is not null). Once a write has failed, so does all that follows.
  // INVALID_ARGUMENT: names, shape or size. ALREADY_EXISTS: the step has this value.
  virtual absl::Status StartWrite(const std::string& unit, const std::string& kind, int64_t begin,
                                  DType dtype, std::vector<int64_t> shape,
                                  absl::Span<const uint8_t> bytes, TierDone done) = 0;

  // Waits for all writes; then the step is on the disk whole, and a recovery point. On an error
  // nothing of the step stays, and earlier steps are untouched. (Where not even the folder can be
  // read again after an error, the step is dropped as soon as it can be.)
  virtual absl::Status Commit(absl::string_view metadata) = 0;
};

// Thread-safe. A step is there whole, from its Commit until DropStep, whatever dies in between;
// nothing else stays in the folder. Each job has a database of its own, so that no damage to the
// state of one job reaches another.
//
// Errors name the folder, job, step and unit. RESOURCE_EXHAUSTED: the disk is full. UNAVAILABLE:
// another error of the system. DATA_LOSS: a value, or the store, is not what was written.
// NOT_FOUND: no such step or value. After an error the store goes on; where the database refuses
// to, it is opened again, within the next call that needs it.
class TierStore {
 public:
  virtual ~TierStore() = default;

  // Removes what uncommitted steps have left. A job that is damaged is no error. UNAVAILABLE:
  // another process holds the folder. FAILED_PRECONDITION: its file system does no direct IO.
  static absl::StatusOr<std::unique_ptr<TierStore>> Open(const TierStoreOptions& options);

  // Committed, sorted by job and step.
  virtual std::vector<TierStep> steps() const = 0;
  // That have a committed step, sorted.
  virtual std::vector<std::string> jobs() const = 0;
  // Found at Open: they can only be dropped. All else that is asked of them gives their status.
  virtual std::vector<TierBrokenJob> broken() const = 0;
  // What a committed step holds, in no particular order. NOT_FOUND.
  virtual absl::StatusOr<std::vector<TierValueHeader>> Values(absl::string_view job,
                                                              int64_t step) const = 0;

  // ALREADY_EXISTS: the step is committed, or being written. RESOURCE_EXHAUSTED, before anything
  // changes: expected_bytes of values do not fit (see CheckSpace).
  virtual absl::StatusOr<std::unique_ptr<TierStepWriter>> BeginStep(absl::string_view job,
                                                                    int64_t step,
                                                                    int64_t expected_bytes) = 0;
  // RESOURCE_EXHAUSTED: so many bytes more do not fit beside the reserve and what steps that are
  // being written still expect.
  virtual absl::Status CheckSpace(int64_t bytes) const = 0;
  // That CheckSpace would allow. 0 where the file system does not tell.
  virtual int64_t free_bytes() const = 0;

  // Starts reading a value into `to`, which stays valid until done. Blocks only while read_depth
  // reads wait. On an error that it returns, done is not called; else it is, with OK only for the
  // very bytes that were written. INVALID_ARGUMENT: the size of `to`. FAILED_PRECONDITION: the
  // value has another dtype or size.
  virtual absl::Status StartRead(const TierKey& key, DType dtype, int64_t num_elements,
                                 absl::Span<uint8_t> to, TierDone done) = 0;
  // The same, and waits.
  absl::Status Read(const TierKey& key, DType dtype, int64_t num_elements, absl::Span<uint8_t> to);

  // The step is gone when it returns, also for a process that is started later. OK if there is
  // none. Its space becomes free in the background; CheckSpace waits for it where it is needed.
  virtual absl::Status DropStep(absl::string_view job, int64_t step) = 0;
  // All steps of a job, at once, broken or not.
  virtual absl::Status DropJob(absl::string_view job) = 0;

  virtual TierStats stats() const = 0;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_STORE_H_
