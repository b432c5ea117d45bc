#include "storage/tier_store_impl.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/status_macros.h"
#include "storage/crc32c.h"
#include "storage/tier_file_system.h"

namespace tessera {
namespace {

absl::StatusOr<std::vector<std::string>> Children(rocksdb::Env& env, const std::string& path) {
  std::vector<std::string> names;
  TESSERA_RETURN_IF_ERROR(FromRocks(env.GetChildren(path, &names), path));
  names.erase(std::remove_if(names.begin(), names.end(),
                             [](const std::string& name) { return name == "." || name == ".."; }),
              names.end());
  return names;
}

// What has been made, renamed or removed in the folder is so on the disk.
absl::Status SyncFolder(rocksdb::Env& env, const std::string& path) {
  std::unique_ptr<rocksdb::Directory> folder;
  rocksdb::Status status = env.NewDirectory(path, &folder);
  if (status.ok()) status = folder->Fsync();
  return FromRocks(status, path);
}

// By another process, or by another store of this one.
bool IsHeld(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  return absl::StrContains(text, "lock hold by current process") ||
         absl::StrContains(text, "While lock file");
}

// The database has files of values, but none that says which.
absl::Status CheckCurrent(rocksdb::Env& env, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, Children(env, path));
  const bool has_values = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return absl::EndsWith(name, ".sst");
  });
  if (!has_values || std::find(names.begin(), names.end(), "CURRENT") != names.end()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(path, "/CURRENT: is missing"));
}

// Writes as files of values are written.
absl::Status TryWriting(rocksdb::Env& env, const std::string& path) {
  std::unique_ptr<rocksdb::WritableFile> file;
  rocksdb::Status status = env.NewWritableFile(path, &file, rocksdb::EnvOptions());
  if (status.ok()) status = file->Append("?");
  if (status.ok()) status = file->Close();
  if (status.ok()) status = env.DeleteFile(path);
  if (absl::StrContains(status.ToString(), std::strerror(EINVAL))) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the file system does no direct IO: ", status.ToString()));
  }
  return FromRocks(status, path);
}

}  // namespace

TierStoreImpl::TierStoreImpl(const TierStoreOptions& options)
    : options_(options),
      jobs_path_(absl::StrCat(options.path, "/jobs")),
      staging_path_(absl::StrCat(options.path, "/staging")),
      write_threads_(options.write_depth),
      file_system_(std::make_shared<TierFileSystem>(
          options.file_system != nullptr ? options.file_system : rocksdb::FileSystem::Default(),
          TierFileOptions{staging_path_,
                          {options.direct_io, options.write_buffer_bytes, &write_threads_},
                          jobs_path_})),
      env_(rocksdb::NewCompositeEnv(file_system_)),
      reads_(2 * options.read_depth),
      build_threads_(std::min(options.build_threads, options.write_depth)),
      verify_threads_(std::min(options.build_threads, options.read_depth), 2 * options.read_depth),
      read_threads_(options.read_depth) {}

TierStoreImpl::~TierStoreImpl() {
  read_threads_.Join();
  verify_threads_.Join();
  databases_.clear();
  file_system_->WaitForDeletes();
  if (lock_ != nullptr) env_->UnlockFile(lock_).PermitUncheckedError();
}

absl::Status TierStoreImpl::Init() {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(options_.path).parent_path(), error);
  if (error) return absl::UnavailableError(absl::StrCat(options_.path, ": ", error.message()));
  for (const std::string& path : {options_.path, jobs_path_, staging_path_}) {
    TESSERA_RETURN_IF_ERROR(FromRocks(env_->CreateDirIfMissing(path), path));
  }
  for (const std::string& path :
       {std::filesystem::path(options_.path).parent_path().string(), options_.path}) {
    TESSERA_RETURN_IF_ERROR(SyncFolder(*env_, path.empty() ? "." : path));
  }
  const std::string lock_path = absl::StrCat(options_.path, "/LOCK");
  if (const rocksdb::Status locked = env_->LockFile(lock_path, &lock_); !locked.ok()) {
    lock_ = nullptr;
    return IsHeld(locked)
               ? absl::UnavailableError(absl::StrCat(
                     options_.path, ": another process holds this folder: ", locked.ToString()))
               : FromRocks(locked, lock_path);
  }
  TESSERA_RETURN_IF_ERROR(EmptyStaging());
  TESSERA_RETURN_IF_ERROR(TryWriting(*env_, absl::StrCat(staging_path_, "/probe")));
  std::lock_guard<std::mutex> change(change_mutex_);
  TESSERA_RETURN_IF_ERROR(OpenJobs());
  std::lock_guard<std::mutex> lock(mutex_);
  stats_ = {};
  return absl::OkStatus();
}

absl::Status TierStoreImpl::EmptyStaging() {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, Children(*env_, staging_path_));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(staging_path_, "/", name);
    bool is_folder = false;
    TESSERA_RETURN_IF_ERROR(FromRocks(env_->IsDirectory(path, &is_folder), path));
    if (!is_folder) {
      TESSERA_RETURN_IF_ERROR(FromRocks(env_->DeleteFile(path), path));
      continue;
    }
    // Its number is not given again before it is gone.
    int64_t number = 0;
    if (absl::SimpleAtoi(name, &number)) next_staging_ = std::max(next_staging_, number + 1);
    file_system_->DeleteFolder(path);
  }
  return absl::OkStatus();
}

absl::Status TierStoreImpl::OpenJobs() {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, Children(*env_, jobs_path_));
  for (const std::string& job : jobs) {
    absl::Status status = CheckCurrent(*env_, PathOf(job));
    if (status.ok()) status = Repair(job);
    if (status.ok() && NumSteps(job) == 0) status = RemoveJob(job);
    // A full disk is everybody's; all else is this job's.
    if (absl::IsResourceExhausted(status)) return status;
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      broken_.emplace(job, status);
    }
  }
  return absl::OkStatus();
}

std::string TierStoreImpl::PathOf(const std::string& job) const {
  return absl::StrCat(jobs_path_, "/", job);
}

std::string TierStoreImpl::NewStagingPath() {
  std::lock_guard<std::mutex> lock(mutex_);
  return absl::StrCat(staging_path_, "/", next_staging_++);
}

int64_t TierStoreImpl::NumSteps(const std::string& job) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(steps_.begin(), steps_.end(),
                       [&](const auto& step) { return step.first.job == job; });
}

absl::Status TierStoreImpl::WhyNoStep(const std::string& job) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto broken = broken_.find(job);
  return broken != broken_.end() ? broken->second
                                 : absl::NotFoundError("the step is not committed");
}

absl::StatusOr<TierStoreImpl::Paths> TierStoreImpl::PathsOf(const TierDatabase& database) {
  Paths paths;
  for (const TierDatabase::File& file : database.Files()) {
    TESSERA_ASSIGN_OR_RETURN(const TierStepName name, ParseTierStepPrefix(file.first_key));
    TESSERA_ASSIGN_OR_RETURN(const uint32_t number, ParseTierFile(file.first_key));
    paths[name][number] = file.path;
  }
  return paths;
}

std::shared_ptr<const TierStoreImpl::Step> TierStoreImpl::MakeStep(
    TierStepRecord record, const std::map<uint32_t, std::string>& paths) {
  auto step = std::make_shared<Step>();
  for (const auto& [number, path] : paths) step->files.try_emplace(number, path);
  step->bytes = record.size_bytes();
  for (size_t i = 0; i < record.values.size(); ++i) {
    const TierValueHeader& header = record.values[i].header;
    step->index.emplace(std::make_tuple(header.unit, header.kind, header.begin), i);
  }
  step->record = std::move(record);
  return step;
}

std::shared_ptr<const TierStoreImpl::Step> TierStoreImpl::FindStep(const TierStepName& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = steps_.find(name);
  return found == steps_.end() ? nullptr : found->second;
}

std::string TierStoreImpl::Describe(const TierStepName& name) const {
  return absl::StrCat(options_.path, ": job ", name.job, " step ", name.step);
}

absl::Status TierStoreImpl::EnsureFolder(const std::string& job) {
  const std::string path = PathOf(job);
  TESSERA_RETURN_IF_ERROR(FromRocks(env_->CreateDirIfMissing(path), path));
  return SyncFolder(*env_, jobs_path_);
}

absl::Status TierStoreImpl::EnsureDatabase(const std::string& job) {
  const auto found = databases_.find(job);
  if (found != databases_.end() && !found->second->has_background_error()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(EnsureFolder(job));
  return Repair(job);
}

absl::Status TierStoreImpl::Change(const std::string& job,
                                   absl::FunctionRef<absl::Status(TierDatabase& database)> change) {
  file_system_->BeginChange(PathOf(job));
  absl::Status status = change(*databases_.at(job));
  // Closed before anything may be deleted that it thinks it does not need.
  if (!status.ok()) databases_.erase(job);
  file_system_->EndChange(/*is_done=*/status.ok());
  if (!status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.repairs;
  }
  return status;
}

absl::Status TierStoreImpl::Repair(const std::string& job) {
  const std::string path = PathOf(job);
  // What the old one would delete may be what the new one finds to be its own.
  file_system_->BeginChange(path);
  databases_.erase(job);
  file_system_->EndChange(/*is_done=*/false);
  file_system_->BeginChange(path);
  absl::StatusOr<std::unique_ptr<TierDatabase>> opened = TierDatabase::Open(path, env_.get());
  file_system_->EndChange(/*is_done=*/opened.ok());
  TESSERA_RETURN_IF_ERROR(opened.status());
  databases_[job] = *std::move(opened);
  return Change(job, [&](TierDatabase& database) { return Load(job, database); });
}

absl::Status TierStoreImpl::Load(const std::string& job, TierDatabase& database) {
  std::map<TierStepName, std::shared_ptr<const Step>> steps;
  TESSERA_ASSIGN_OR_RETURN(const auto records, database.Records());
  TESSERA_ASSIGN_OR_RETURN(Paths paths, PathsOf(database));
  for (const auto& [key, bytes] : records) {
    TESSERA_ASSIGN_OR_RETURN(const TierStepName name, ParseTierStepPrefix(key));
    auto record = DecodeTierStepRecord(bytes);
    if (!record.ok() || name.job != job) {
      return absl::DataLossError(absl::StrCat(
          Describe(name), ": ", record.ok() ? "is of another job" : record.status().message()));
    }
    if (doomed_.contains(name)) {
      TESSERA_RETURN_IF_ERROR(database.DeleteRecord(key));
    } else {
      steps.emplace(name, MakeStep(*std::move(record), paths[name]));
    }
  }
  for (const auto& [name, files] : paths) {
    if (steps.contains(name)) continue;
    TESSERA_RETURN_IF_ERROR(
        database.DropFiles(TierStepPrefix(name.job, name.step), TierStepEnd(name.job, name.step)));
  }
  std::erase_if(doomed_, [&](const TierStepName& name) { return name.job == job; });
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(steps_, [&](const auto& step) { return step.first.job == job; });
  steps_.merge(steps);
  return absl::OkStatus();
}

absl::Status TierStoreImpl::Commit(const TierStepName& name, const std::vector<std::string>& paths,
                                   TierStepRecord record) {
  const std::string key = TierStepPrefix(name.job, name.step);
  const std::string bytes = EncodeTierStepRecord(record);
  std::lock_guard<std::mutex> change(change_mutex_);
  absl::Status status = EnsureDatabase(name.job);
  if (status.ok()) {
    status = Change(name.job, [&](TierDatabase& database) -> absl::Status {
      if (!paths.empty()) TESSERA_RETURN_IF_ERROR(database.Ingest(paths));
      TESSERA_RETURN_IF_ERROR(database.PutRecord(key, bytes));
      TESSERA_ASSIGN_OR_RETURN(Paths ingested, PathsOf(database));
      std::lock_guard<std::mutex> lock(mutex_);
      steps_.insert_or_assign(name, MakeStep(std::move(record), ingested[name]));
      return absl::OkStatus();
    });
    if (!status.ok()) {
      if (!Repair(name.job).ok()) {
        doomed_.insert(name);
      } else if (FindStep(name) != nullptr) {
        // The error came after the record had reached the disk: the step is there, whole.
        status = absl::OkStatus();
      }
    }
  }
  if (!status.ok()) {
    // Else it goes at the next Open.
    if (NumSteps(name.job) == 0) RemoveJob(name.job).IgnoreError();
    return status;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.committed_steps;
  return absl::OkStatus();
}

absl::Status TierStoreImpl::RemoveJob(const std::string& job) {
  const std::string path = PathOf(job);
  databases_.erase(job);
  const rocksdb::Status exists = env_->FileExists(path);
  if (!exists.ok() && !exists.IsNotFound()) return FromRocks(exists, path);
  const std::string gone = NewStagingPath();
  if (exists.ok()) {
    file_system_->ForgetDeletes(path);
    TESSERA_RETURN_IF_ERROR(FromRocks(env_->RenameFile(path, gone), path));
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(steps_, [&](const auto& step) { return step.first.job == job; });
    broken_.erase(job);
  }
  std::erase_if(doomed_, [&](const TierStepName& name) { return name.job == job; });
  if (!exists.ok()) return absl::OkStatus();
  // First the rename: a part of the job must not be found again. What an error leaves in the
  // staging folder goes at the next Open.
  TESSERA_RETURN_IF_ERROR(SyncFolder(*env_, jobs_path_));
  file_system_->DeleteFolder(gone);
  return absl::OkStatus();
}

absl::Status TierStoreImpl::StartRead(const TierKey& key, DType dtype, int64_t num_elements,
                                      absl::Span<uint8_t> to, TierDone done) {
  TESSERA_RETURN_IF_ERROR(CheckTierKey(key));
  const auto message = [&](const auto&... parts) {
    return absl::StrCat(options_.path, ": ", key.ToString(), ": ", parts...);
  };
  if (static_cast<int64_t>(to.size()) != num_elements * DTypeSizeBytes(dtype)) {
    return absl::InvalidArgumentError(
        message(to.size(), " bytes cannot take ", num_elements, " ", DTypeName(dtype)));
  }
  const TierStepName name{key.job, key.step};
  const std::shared_ptr<const Step> step = FindStep(name);
  if (step == nullptr) {
    const absl::Status status = WhyNoStep(key.job);
    return absl::Status(status.code(), message(status.message()));
  }
  const auto found = step->index.find({key.unit, key.kind, key.begin});
  if (found == step->index.end()) return absl::NotFoundError(message("the step has no such value"));
  const TierStepRecord::Value& value = step->record.values[found->second];
  if (value.header.dtype != dtype || value.header.num_elements() != num_elements) {
    return absl::FailedPreconditionError(message("has ", value.header.num_elements(), " ",
                                                 DTypeName(value.header.dtype), ", not ",
                                                 num_elements, " ", DTypeName(dtype)));
  }
  const auto finish = [this, name, key, step, done = std::move(done)](absl::Status status) {
    if (!status.ok() && FindStep(name) != step) {
      status = absl::NotFoundError("the step has been dropped");
    }
    if (!status.ok()) {
      status = absl::Status(
          status.code(), absl::StrCat(options_.path, ": ", key.ToString(), ": ", status.message()));
    }
    if (done) done(std::move(status));
  };
  reads_.Add();
  read_threads_.Run([this, step, &value, to, finish] {
    absl::Status status = ReadValue(*step, value, to);
    // The next read starts while this one is verified, or a busy processor would keep the disk
    // idle.
    verify_threads_.Run([this, step, &value, to, finish, status = std::move(status)] {
      finish(status.ok() ? Verify(value, to) : status);
      reads_.Done();
    });
  });
  return absl::OkStatus();
}

absl::StatusOr<const rocksdb::FSRandomAccessFile*> TierStoreImpl::ValueFile::Open(
    rocksdb::FileSystem& file_system) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr) {
    TESSERA_RETURN_IF_ERROR(FromRocks(
        file_system.NewRandomAccessFile(path_, rocksdb::FileOptions(), &file_, nullptr), path_));
  }
  return file_.get();
}

absl::Status TierStoreImpl::ValueFile::Read(rocksdb::FileSystem& file_system, int64_t offset,
                                            absl::Span<uint8_t> to) {
  TESSERA_ASSIGN_OR_RETURN(const rocksdb::FSRandomAccessFile* file, Open(file_system));
  rocksdb::Slice read;
  TESSERA_RETURN_IF_ERROR(FromRocks(
      file->Read(offset, to.size(), {}, &read, reinterpret_cast<char*>(to.data()), nullptr),
      path_));
  if (read.size() != to.size()) {
    return absl::DataLossError(absl::StrCat(path_, " ends before it does"));
  }
  return absl::OkStatus();
}

absl::Status TierStoreImpl::ReadValue(const Step& step, const TierStepRecord::Value& value,
                                      absl::Span<uint8_t> to) {
  const auto file = step.files.find(value.place.file);
  if (file == step.files.end()) return absl::DataLossError("its file is not in the database");
  return file->second.Read(*file_system_, value.offset, to);
}

absl::Status TierStoreImpl::Verify(const TierStepRecord::Value& value, absl::Span<uint8_t> to) {
  if (const uint32_t crc = Crc32c(to); crc != value.header.crc) {
    return absl::DataLossError(absl::StrFormat("has crc32c %08x, not %08x", crc, value.header.crc));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.read_bytes += static_cast<int64_t>(to.size());
  return absl::OkStatus();
}

}  // namespace tessera
