#include "storage/tier_store.h"

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/tier_step_writer.h"
#include "storage/tier_store_impl.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<TierStore>> TierStore::Open(const TierStoreOptions& options) {
  auto store = std::make_unique<TierStoreImpl>(options);
  TESSERA_RETURN_IF_ERROR(store->Init());
  return store;
}

absl::Status TierStore::Read(const TierKey& key, DType dtype, int64_t num_elements,
                             absl::Span<uint8_t> to) {
  std::promise<absl::Status> result;
  TESSERA_RETURN_IF_ERROR(StartRead(key, dtype, num_elements, to, [&result](absl::Status status) {
    result.set_value(std::move(status));
  }));
  return result.get_future().get();
}

std::vector<TierStep> TierStoreImpl::steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<TierStep> steps;
  for (const auto& [name, step] : steps_) {
    steps.push_back({name.job, name.step, step->bytes, step->record.metadata});
  }
  return steps;
}

std::vector<std::string> TierStoreImpl::jobs() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> jobs;
  for (const auto& [name, step] : steps_) {
    if (jobs.empty() || jobs.back() != name.job) jobs.push_back(name.job);
  }
  return jobs;
}

absl::StatusOr<std::vector<TierValueHeader>> TierStoreImpl::Values(absl::string_view job,
                                                                   int64_t step) const {
  const TierStepName name{std::string(job), step};
  const std::shared_ptr<const Step> found = FindStep(name);
  if (found == nullptr) {
    const absl::Status status = WhyNoStep(name.job);
    return absl::Status(status.code(), absl::StrCat(Describe(name), ": ", status.message()));
  }
  std::vector<TierValueHeader> headers;
  for (const TierStepRecord::Value& value : found->record.values) headers.push_back(value.header);
  return headers;
}

std::vector<TierBrokenJob> TierStoreImpl::broken() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<TierBrokenJob> broken;
  for (const auto& [job, status] : broken_) broken.push_back({job, status});
  return broken;
}

TierStats TierStoreImpl::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  TierStats stats = stats_;
  for (const auto& [name, step] : steps_) stats.resident_bytes += step->bytes;
  return stats;
}

int64_t TierStoreImpl::free_bytes() const {
  uint64_t free = 0;
  if (!file_system_->GetFreeSpace(options_.path, {}, &free, nullptr).ok()) return 0;
  int64_t left =
      static_cast<int64_t>(std::min<uint64_t>(free, std::numeric_limits<int64_t>::max()));
  left -= options_.reserve_bytes;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [name, bytes] : expected_) left -= bytes;
  return std::max<int64_t>(0, left);
}

absl::Status TierStoreImpl::CheckSpace(int64_t bytes) const {
  int64_t free = free_bytes();
  if (bytes > free) {
    file_system_->WaitForDeletes();
    free = free_bytes();
  }
  if (bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(options_.path, ": ", bytes, " bytes do not fit; ", free, " are free beside ",
                   options_.reserve_bytes, " in reserve and steps that are being written"));
}

absl::StatusOr<std::unique_ptr<TierStepWriter>> TierStoreImpl::BeginStep(absl::string_view job,
                                                                         int64_t step,
                                                                         int64_t expected_bytes) {
  TESSERA_RETURN_IF_ERROR(CheckTierStep(job, step));
  const TierStepName name{std::string(job), step};
  const std::string description = Describe(name);
  if (const absl::Status fits = CheckSpace(expected_bytes); !fits.ok()) {
    return absl::Status(fits.code(), absl::StrCat(description, ": ", fits.message()));
  }
  TierStaging staging;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto broken = broken_.find(name.job); broken != broken_.end()) {
      return absl::Status(broken->second.code(),
                          absl::StrCat(description, ": ", broken->second.message()));
    }
    if (steps_.contains(name)) {
      return absl::AlreadyExistsError(absl::StrCat(description, ": committed already"));
    }
    if (!expected_.emplace(name, expected_bytes).second) {
      return absl::AlreadyExistsError(absl::StrCat(description, ": being written already"));
    }
  }
  staging.path_prefix = absl::StrCat(NewStagingPath(), "-");
  staging.error_prefix = description;
  staging.step_prefix = TierStepPrefix(job, step);
  staging.env = env_.get();
  staging.threads = &build_threads_;
  staging.max_values = 2 * options_.write_depth;
  staging.max_files = static_cast<int>(
      std::clamp<int64_t>(expected_bytes / options_.min_file_bytes, 1, options_.write_depth));
  staging.file_bytes = options_.file_bytes;
  staging.commit = [this, name](const std::vector<std::string>& paths, TierStepRecord record) {
    return Commit(name, paths, std::move(record));
  };
  staging.on_written = [this, name](int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.written_bytes += bytes;
    int64_t& left = expected_[name];
    left = std::max<int64_t>(0, left - bytes);
  };
  staging.on_end = [this, name] {
    std::lock_guard<std::mutex> lock(mutex_);
    expected_.erase(name);
  };
  return std::make_unique<StagedTierStep>(std::move(staging));
}

absl::Status TierStoreImpl::DropStep(absl::string_view job, int64_t step) {
  TESSERA_RETURN_IF_ERROR(CheckTierStep(job, step));
  const TierStepName name{std::string(job), step};
  std::lock_guard<std::mutex> change(change_mutex_);
  absl::Status status;
  if (FindStep(name) == nullptr) {
    status = WhyNoStep(name.job);
    if (absl::IsNotFound(status)) return absl::OkStatus();
  } else if (NumSteps(name.job) == 1) {
    status = RemoveJob(name.job);
  } else {
    status = DropOneOf(name);
    // Once it has been opened again without this step, nothing of it is left.
    if (!status.ok() && Repair(name.job).ok() && FindStep(name) == nullptr) {
      status = absl::OkStatus();
    }
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(Describe(name), ": ", status.message()));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.dropped_steps;
  return absl::OkStatus();
}

absl::Status TierStoreImpl::DropOneOf(const TierStepName& name) {
  TESSERA_RETURN_IF_ERROR(EnsureDatabase(name.job));
  const std::string begin = TierStepPrefix(name.job, name.step);
  return Change(name.job, [&](TierDatabase& database) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(database.DeleteRecord(begin));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      steps_.erase(name);
    }
    return database.DropFiles(begin, TierStepEnd(name.job, name.step));
  });
}

absl::Status TierStoreImpl::DropJob(absl::string_view job) {
  TESSERA_RETURN_IF_ERROR(CheckTierStep(job, 0));
  std::lock_guard<std::mutex> change(change_mutex_);
  const std::string name(job);
  const int64_t steps = NumSteps(name);
  absl::Status status = RemoveJob(name);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(options_.path, ": job ", job, ": ", status.message()));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.dropped_steps += steps;
  return absl::OkStatus();
}

}  // namespace tessera
