#include "worker/service/kept_weights.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr char kPartSuffix[] = ".part";

absl::Status SystemError(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

}  // namespace

KeptWeights::KeptWeights(std::string folder, int count)
    : folder_(std::move(folder)), count_(count) {
  std::error_code error;
  std::vector<fs::path> parts;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (absl::EndsWith(entry.path().string(), kPartSuffix)) parts.push_back(entry.path());
  }
  for (const fs::path& part : parts) fs::remove_all(part, error);
  RemoveOldest();
}

absl::Status KeptWeights::Keep(
    const std::string& job_uid,
    const std::function<absl::Status(const std::string& folder)>& write) {
  if (count_ == 0) return absl::FailedPreconditionError("this worker keeps no weights");
  std::lock_guard<std::mutex> lock(mutex_);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return SystemError(folder_, error);
  const std::string target = absl::StrCat(folder_, "/", job_uid);
  const std::string part = target + kPartSuffix;
  fs::remove_all(part, error);
  absl::Status status = write(part);
  if (status.ok()) {
    fs::remove_all(target, error);
    fs::rename(part, target, error);
    if (error) status = SystemError(target, error);
  }
  if (!status.ok()) {
    fs::remove_all(part, error);
    return status;
  }
  RemoveOldest();
  return absl::OkStatus();
}

absl::StatusOr<std::string> KeptWeights::Find(const std::string& job_uid) const {
  std::string folder = absl::StrCat(folder_, "/", job_uid);
  std::error_code error;
  if (!job_uid.empty() && fs::is_directory(folder, error)) return folder;
  return absl::NotFoundError(
      absl::StrCat("its weights are not kept (those of the last ", count_, " that succeeded are)"));
}

void KeptWeights::RemoveOldest() {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> kept;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    kept.emplace_back(entry.last_write_time(error), entry.path());
  }
  std::sort(kept.begin(), kept.end());
  for (size_t i = 0; i + count_ < kept.size(); ++i) fs::remove_all(kept[i].second, error);
}

}  // namespace tessera
