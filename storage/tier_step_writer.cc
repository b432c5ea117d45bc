#include "storage/tier_step_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/crc32c.h"

namespace tessera {

StagedTierStep::StagedTierStep(TierStaging staging)
    : staging_(std::move(staging)), values_(staging_.max_values) {}

StagedTierStep::~StagedTierStep() {
  builds_.Wait();
  values_.Wait();
  idle_files_.clear();
  for (const std::string& path : paths_) {
    // Not there if the step was committed. One that cannot be deleted goes at the next Open.
    if (!is_committed_) staging_.env->DeleteFile(path).PermitUncheckedError();
  }
  staging_.on_end();
}

absl::Status StagedTierStep::status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

absl::Status StagedTierStep::Note(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return status_;
  status_ = absl::Status(status.code(),
                         absl::StrCat(staging_.error_prefix, what, ": ", status.message()));
  return status_;
}

absl::Status StagedTierStep::StartWrite(const std::string& unit, const std::string& kind,
                                        int64_t begin, DType dtype, std::vector<int64_t> shape,
                                        absl::Span<const uint8_t> bytes, TierDone done) {
  TESSERA_RETURN_IF_ERROR(CheckTierKey({"-", 0, unit, kind, begin}));
  TierValueHeader header{unit, kind, begin, dtype, std::move(shape), 0};
  TESSERA_RETURN_IF_ERROR(CheckTierShape(header, static_cast<int64_t>(bytes.size())));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
    if (!names_.emplace(unit, kind, begin).second) {
      return absl::AlreadyExistsError(absl::StrCat(staging_.error_prefix, " unit ", unit, " ", kind,
                                                   " at ", begin, " is written twice"));
    }
  }
  const std::string what = absl::StrCat(" unit ", unit, " ", kind);
  const auto size = static_cast<int64_t>(bytes.size());
  values_.Add();
  const TierDone finish = [this, what, size, done = std::move(done)](absl::Status status) {
    status = Note(status, what);
    if (status.ok()) staging_.on_written(size);
    if (done) done(std::move(status));
    values_.Done();
  };
  builds_.Add();
  staging_.threads->Run([this, header = std::move(header), bytes, what, finish]() mutable {
    Note(Build(std::move(header), bytes, finish), what).IgnoreError();
    builds_.Done();
  });
  return absl::OkStatus();
}

absl::Status StagedTierStep::Build(TierValueHeader header, absl::Span<const uint8_t> bytes,
                                   const TierDone& done) {
  auto file = TakeFile();
  if (!file.ok()) {
    done(file.status());
    return file.status();
  }
  header.crc = Crc32c(bytes);
  TESSERA_ASSIGN_OR_RETURN(const TierFileBuilder::Place place, (*file)->Add(header, bytes, done));
  const bool is_full = (*file)->size_bytes() >= staging_.file_bytes;
  if (is_full) TESSERA_RETURN_IF_ERROR((*file)->Finish());
  std::lock_guard<std::mutex> lock(mutex_);
  record_.values.push_back({place.place, place.offset, std::move(header)});
  if (is_full) {
    --open_files_;
  } else {
    idle_files_.push_back(*std::move(file));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TierFileBuilder>> StagedTierStep::TakeFile() {
  std::string path;
  uint32_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
    if (!idle_files_.empty() && open_files_ >= staging_.max_files) {
      std::unique_ptr<TierFileBuilder> file = std::move(idle_files_.front());
      idle_files_.pop_front();
      return file;
    }
    ++open_files_;
    number = static_cast<uint32_t>(paths_.size());
    path = absl::StrCat(staging_.path_prefix, number, ".sst");
    paths_.push_back(path);
  }
  return TierFileBuilder::Create(path, staging_.env, staging_.step_prefix, number);
}

absl::Status StagedTierStep::FinishAll() {
  builds_.Wait();
  std::deque<std::unique_ptr<TierFileBuilder>> files;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
    files = std::move(idle_files_);
  }
  for (std::unique_ptr<TierFileBuilder>& file : files) {
    builds_.Add();
    staging_.threads->Run([this, file = std::shared_ptr<TierFileBuilder>(std::move(file))] {
      Note(file->Finish(), "").IgnoreError();
      builds_.Done();
    });
  }
  builds_.Wait();
  values_.Wait();
  return status();
}

absl::Status StagedTierStep::Commit(absl::string_view metadata) {
  TESSERA_RETURN_IF_ERROR(FinishAll());
  record_.metadata = std::string(metadata);
  TESSERA_RETURN_IF_ERROR(Note(staging_.commit(paths_, std::move(record_)), ""));
  is_committed_ = true;
  return absl::OkStatus();
}

}  // namespace tessera
