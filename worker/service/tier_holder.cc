#include "worker/service/tier_holder.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "proto/tessera/v1/saved_rank.pb.h"

namespace tessera {
namespace {

absl::Status Named(const absl::Status& status, absl::string_view flag) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

void Add(const TierCounts& counts, TierCounts& total) {
  total.read_bytes += counts.read_bytes;
  total.written_bytes += counts.written_bytes;
  total.late_reads += counts.late_reads;
  total.wait_seconds += counts.wait_seconds;
}

// Steps come sorted by job.
std::vector<v1::SavedState> SavedStates(const std::vector<TierStep>& steps) {
  std::vector<v1::SavedState> saved;
  for (const TierStep& step : steps) {
    v1::SavedRank rank;
    if (!rank.ParseFromString(step.metadata)) continue;  // of no use to anybody
    if (saved.empty() || saved.back().job_uid() != step.job) {
      v1::SavedState& state = saved.emplace_back();
      state.set_job_uid(step.job);
      state.set_global_rank(rank.coordinates().global_rank());
    }
    saved.back().add_steps(step.step);
  }
  return saved;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TierHolder>> TierHolder::Create(const TierHolderOptions& options,
                                                               Logger* log) {
  std::unique_ptr<TierHolder> holder(new TierHolder(log));
  TESSERA_RETURN_IF_ERROR(holder->Open(options));
  return holder;
}

absl::Status TierHolder::Open(const TierHolderOptions& options) {
  if (options.host_memory_bytes > 0) {
    auto host =
        CpuDevice::Create(absl::StrCat(options.worker, " host memory"), options.host_memory_bytes,
                          options.num_threads, CpuMemory::kHugePages);
    if (!host.ok()) return Named(host.status(), "--host-memory");
    host_ = *std::move(host);
    const absl::Status locked = host_->LockPages();
    is_pinned_ = locked.ok();
    if (!locked.ok() && options.requires_pinned) return Named(locked, "--require-pinned");
    if (!locked.ok()) {
      log_->Warning("host memory is not page-locked: copies to and from a device may be slower",
                    {{"error", locked.message()}});
    }
  }
  if (options.nvme_dir.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(options.nvme_dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("--nvme-dir=", options.nvme_dir, ": ", error.message()));
  }
  TierStoreOptions store;
  store.path = absl::StrCat(options.nvme_dir, "/state");
  swap_dir_ = absl::StrCat(options.nvme_dir, "/swap");
  store.reserve_bytes = options.nvme_reserve_bytes;
  absl::StatusOr<std::unique_ptr<TierStore>> nvme = TierStore::Open(store);
  if (absl::IsFailedPrecondition(nvme.status()) && !options.requires_nvme) {
    log_->Warning(
        "there is no nvme tier: no job can be offloaded to it, or suspended; give "
        "--nvme-dir a folder on a disk",
        {{"error", nvme.status().message()}});
    return absl::OkStatus();
  }
  if (!nvme.ok()) return Named(nvme.status(), "--nvme-dir");
  nvme_ = *std::move(nvme);
  for (const TierBrokenJob& broken : nvme_->broken()) {
    log_->Error("state of a job is damaged: the job cannot go on from it",
                {{"job_uid", broken.job}, {"error", broken.status.message()}});
  }
  discarder_ = std::thread([this] { DiscardUntilStopped(); });
  return absl::OkStatus();
}

TierHolder::~TierHolder() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (discarder_.joinable()) discarder_.join();
}

std::vector<v1::SavedState> TierHolder::Saved() const {
  if (nvme_ == nullptr) return {};
  std::vector<v1::SavedState> saved = SavedStates(nvme_->steps());
  for (const TierBrokenJob& broken : nvme_->broken()) {
    v1::SavedState& state = saved.emplace_back();
    state.set_job_uid(broken.job);
    state.set_damage(std::string(broken.status.message()));
  }
  return saved;
}

std::optional<v1::SavedState> TierHolder::SavedOf(const std::string& job_uid) const {
  for (v1::SavedState& saved : Saved()) {
    if (saved.job_uid() == job_uid) return std::move(saved);
  }
  return std::nullopt;
}

void TierHolder::Discard(const std::string& job_uid) {
  std::lock_guard<std::mutex> lock(mutex_);
  discards_.push_back(job_uid);
  changed_.notify_all();
}

void TierHolder::DiscardUntilStopped() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !discards_.empty(); });
    if (stopping_) return;
    const std::string job_uid = std::move(discards_.front());
    discards_.pop_front();
    lock.unlock();
    const absl::Status status = nvme_->DropJob(job_uid);
    if (status.ok()) {
      log_->Info("state discarded", {{"job_uid", job_uid}});
    } else {
      log_->Warning("state could not be discarded",
                    {{"job_uid", job_uid}, {"error", status.ToString()}});
    }
    lock.lock();
  }
}

void TierHolder::AddToHeartbeat(v1::Heartbeat& heartbeat) const {
  if (host_ != nullptr) {
    heartbeat.set_host_memory_used_bytes(host_->arena().usage().current_bytes);
  }
  if (nvme_ == nullptr) return;
  heartbeat.set_nvme_free_bytes(nvme_->free_bytes());
  heartbeat.set_nvme_used_bytes(nvme_->stats().resident_bytes);
}

void TierHolder::Count(const TierCounts& host, const TierCounts& nvme) {
  std::lock_guard<std::mutex> lock(mutex_);
  Add(host, totals_.host);
  Add(nvme, totals_.nvme);
}

TierTotals TierHolder::totals() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return totals_;
}

}  // namespace tessera
