#include "storage/tier_store_impl.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/status_macros.h"
#include "storage/crc32c.h"
#include "storage/tier_file_system.h"

namespace tessera {
namespace {

// Removes what lies in the folder.
absl::Status Empty(rocksdb::Env& env, const std::string& path) {
  std::vector<std::string> names;
  TESSERA_RETURN_IF_ERROR(FromRocks(env.GetChildren(path, &names), path));
  for (const std::string& name : names) {
    if (name == "." || name == "..") continue;
    const std::string file = absl::StrCat(path, "/", name);
    TESSERA_RETURN_IF_ERROR(FromRocks(env.DeleteFile(file), file));
  }
  return absl::OkStatus();
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
      database_path_(absl::StrCat(options.path, "/db")),
      staging_path_(absl::StrCat(options.path, "/staging")),
      write_threads_(options.write_depth),
      file_system_(std::make_shared<TierFileSystem>(
          options.file_system != nullptr ? options.file_system : rocksdb::FileSystem::Default(),
          TierFileOptions{staging_path_,
                          {options.direct_io, options.write_buffer_bytes, &write_threads_},
                          database_path_})),
      env_(rocksdb::NewCompositeEnv(file_system_)),
      reads_(2 * options.read_depth),
      build_threads_(std::min(options.build_threads, options.write_depth)),
      verify_threads_(std::min(options.build_threads, options.read_depth), 2 * options.read_depth),
      read_threads_(options.read_depth) {}

TierStoreImpl::~TierStoreImpl() = default;

absl::Status TierStoreImpl::Init() {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(options_.path).parent_path(), error);
  if (error) return absl::UnavailableError(absl::StrCat(options_.path, ": ", error.message()));
  for (const std::string& path : {options_.path, staging_path_}) {
    TESSERA_RETURN_IF_ERROR(FromRocks(env_->CreateDirIfMissing(path), path));
  }
  std::lock_guard<std::mutex> change(change_mutex_);
  // First, since the database tells whether another process holds the folder.
  TESSERA_RETURN_IF_ERROR(Repair());
  TESSERA_RETURN_IF_ERROR(Empty(*env_, staging_path_));
  TESSERA_RETURN_IF_ERROR(TryWriting(*env_, absl::StrCat(staging_path_, "/probe")));
  std::lock_guard<std::mutex> lock(mutex_);
  stats_ = {};
  return absl::OkStatus();
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

absl::Status TierStoreImpl::EnsureDatabase() {
  if (database_ != nullptr && !database_->has_background_error()) return absl::OkStatus();
  return Repair();
}

absl::Status TierStoreImpl::Change(const std::function<absl::Status()>& change) {
  file_system_->BeginChange();
  absl::Status status = change();
  // Closed before anything may be deleted that it thinks it does not need.
  if (!status.ok()) database_ = nullptr;
  file_system_->EndChange(/*is_done=*/status.ok());
  return status;
}

absl::Status TierStoreImpl::Repair() {
  file_system_->BeginChange();
  database_ = nullptr;
  file_system_->EndChange(/*is_done=*/false);
  TESSERA_RETURN_IF_ERROR(Change([this]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(database_, TierDatabase::Open(database_path_, env_.get()));
    return Load(*database_);
  }));
  std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.repairs;
  return absl::OkStatus();
}

absl::Status TierStoreImpl::Load(TierDatabase& database) {
  std::map<TierStepName, std::shared_ptr<const Step>> steps;
  TESSERA_ASSIGN_OR_RETURN(const auto records, database.Records());
  TESSERA_ASSIGN_OR_RETURN(Paths paths, PathsOf(database));
  for (const auto& [key, bytes] : records) {
    TESSERA_ASSIGN_OR_RETURN(const TierStepName name, ParseTierStepPrefix(key));
    auto record = DecodeTierStepRecord(bytes);
    if (!record.ok()) {
      return absl::DataLossError(absl::StrCat(Describe(name), ": ", record.status().message()));
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
  doomed_.clear();
  std::lock_guard<std::mutex> lock(mutex_);
  steps_ = std::move(steps);
  return absl::OkStatus();
}

absl::Status TierStoreImpl::Commit(const TierStepName& name, const std::vector<std::string>& paths,
                                   TierStepRecord record) {
  const std::string key = TierStepPrefix(name.job, name.step);
  const std::string bytes = EncodeTierStepRecord(record);
  std::lock_guard<std::mutex> change(change_mutex_);
  TESSERA_RETURN_IF_ERROR(EnsureDatabase());
  absl::Status status = Change([&]() -> absl::Status {
    if (!paths.empty()) TESSERA_RETURN_IF_ERROR(database_->Ingest(paths));
    TESSERA_RETURN_IF_ERROR(database_->PutRecord(key, bytes));
    TESSERA_ASSIGN_OR_RETURN(Paths ingested, PathsOf(*database_));
    std::lock_guard<std::mutex> lock(mutex_);
    steps_.insert_or_assign(name, MakeStep(std::move(record), ingested[name]));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    if (!Repair().ok()) {
      doomed_.insert(name);
      return status;
    }
    // An error after the record had reached the disk: the step is there, whole.
    if (FindStep(name) == nullptr) return status;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.committed_steps;
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
  if (step == nullptr) return absl::NotFoundError(message("the step is not committed"));
  const auto found = step->index.find({key.unit, key.kind, key.begin});
  if (found == step->index.end()) return absl::NotFoundError(message("the step has no such value"));
  const TierStepRecord::Value& value = step->record.values[found->second];
  if (value.header.dtype != dtype || value.header.num_elements() != num_elements) {
    return absl::FailedPreconditionError(message("has ", value.header.num_elements(), " ",
                                                 DTypeName(value.header.dtype), ", not ",
                                                 num_elements, " ", DTypeName(dtype)));
  }
  const auto finish = [this, name, key, done = std::move(done)](absl::Status status) {
    if (!status.ok() && FindStep(name) == nullptr) {
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
