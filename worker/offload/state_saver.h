// One rank's state in the nvme tier: the steps that are committed, and the one being written.
#ifndef TESSERA_WORKER_OFFLOAD_STATE_SAVER_H_
#define TESSERA_WORKER_OFFLOAD_STATE_SAVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "storage/tier_store.h"
#include "worker/offload/tier_buffers.h"
#include "worker/offload/tier_meter.h"

namespace tessera {

// Reason of errors of the tier (proto/rpc/field_error.h): a full or broken disk, not the job.
inline constexpr char kTierFailed[] = "TIER_FAILED";
// Kinds of values: of a piece of optimizer state (kNumStateArrays, count) in fp32, and of weights
// (count) in the job's precision.
inline constexpr char kOptimizerKind[] = "optimizer";
inline constexpr char kParametersKind[] = "parameters";

// The status of a tier, with reason TIER_FAILED.
absl::Status WithTierReason(const absl::Status& status);

// Used by one thread. Errors of TierStore, with reason TIER_FAILED. store, buffers and meter
// outlive it. The destructor leaves what is committed and nothing else.
class StateSaver {
 public:
  StateSaver(TierStore& store, std::string job_uid, TierBuffers& buffers, TierMeter& meter)
      : store_(store), job_uid_(std::move(job_uid)), buffers_(buffers), meter_(meter) {}
  ~StateSaver();

  TierStore& store() { return store_; }
  TierBuffers& buffers() { return buffers_; }
  TierMeter& meter() { return meter_; }
  const std::string& job_uid() const { return job_uid_; }
  // Of the last commit that has been settled.
  std::optional<int64_t> committed_step() const { return committed_step_; }
  // The step is committed and is gone on from; other steps of the job are removed.
  absl::Status Adopt(int64_t step);
  // All steps of the job are removed.
  absl::Status RemoveAll();

  // RESOURCE_EXHAUSTED: a next step of so many bytes does not fit, when all steps but the last are
  // gone.
  absl::Status CheckSpace(int64_t step_bytes) const;
  // Removes all steps but the last, then starts the next one. REQUIRES: all ranks of the job have
  // committed the last; it is settled.
  absl::Status Begin(int64_t step, int64_t step_bytes);
  bool is_writing() const { return writer_ != nullptr && !commit_.joinable(); }
  // Takes the value's first size_bytes from the buffer, which is given back when they are written.
  absl::Status Write(const std::string& unit, const std::string& kind, int64_t begin, DType dtype,
                     std::vector<int64_t> shape, int64_t size_bytes, TierBuffer buffer);
  // Starts to commit what has been written, beside what comes next; Settle waits for it and
  // returns its error, after which the step is gone. OK where nothing is being committed.
  void StartCommit(std::string metadata);
  absl::Status Settle();
  // Gives up the step that is being written.
  void Abandon();

  // What the job's steps take, the most at once.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  // Of committed steps of the job.
  std::vector<TierStep> Held() const;

  TierStore& store_;
  const std::string job_uid_;
  TierBuffers& buffers_;
  TierMeter& meter_;
  std::optional<int64_t> committed_step_;
  int64_t step_ = 0;  // of writer_
  std::unique_ptr<TierStepWriter> writer_;
  std::thread commit_;
  absl::Status commit_status_;  // of commit_, when it has been joined
  int64_t peak_bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_STATE_SAVER_H_
