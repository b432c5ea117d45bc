#include "storage/tier_step_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/crc32c.h"

namespace tessera {

StagedTierStep::StagedTierStep(TierStaging staging) : staging_(std::move(staging)) {}

StagedTierStep::~StagedTierStep() {
  pending_.Wait();
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
  pending_.Add();
  staging_.threads->Run(
      [this, header = std::move(header), bytes, done = std::move(done)]() mutable {
        const std::string what = absl::StrCat(" unit ", header.unit, " ", header.kind);
        Note(Write(std::move(header), bytes, std::move(done)), what).IgnoreError();
        pending_.Done();
      });
  return absl::OkStatus();
}

absl::Status StagedTierStep::Write(TierValueHeader header, absl::Span<const uint8_t> bytes,
                                   TierDone done) {
  absl::Status result = status();
  std::unique_ptr<TierFileBuilder> file;
  if (result.ok()) {
    header.crc = Crc32c(bytes);
    auto taken = TakeFile();
    result = taken.status();
    if (taken.ok()) {
      file = *std::move(taken);
      const auto place = file->Add(header, bytes);
      result = place.status();
      if (place.ok()) {
        std::lock_guard<std::mutex> lock(mutex_);
        record_.values.push_back({*place, header});
      }
    }
  }
  // The file may take long to finish, and the caller wants its memory back.
  if (done) {
    done(Note(result, absl::StrCat(" unit ", header.unit, " ", header.kind)));
  }
  if (!result.ok()) return result;
  staging_.on_written(static_cast<int64_t>(bytes.size()));
  if (file->size_bytes() >= staging_.file_bytes) return file->Finish();
  std::lock_guard<std::mutex> lock(mutex_);
  idle_files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TierFileBuilder>> StagedTierStep::TakeFile() {
  std::string path;
  uint32_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_files_.empty()) {
      std::unique_ptr<TierFileBuilder> file = std::move(idle_files_.back());
      idle_files_.pop_back();
      return file;
    }
    number = static_cast<uint32_t>(paths_.size());
    path = absl::StrCat(staging_.path_prefix, number, ".sst");
    paths_.push_back(path);
  }
  return TierFileBuilder::Create(path, staging_.env, staging_.step_prefix, number);
}

absl::Status StagedTierStep::FinishAll() {
  pending_.Wait();
  std::vector<std::unique_ptr<TierFileBuilder>> files;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
    files = std::move(idle_files_);
  }
  for (std::unique_ptr<TierFileBuilder>& file : files) {
    pending_.Add();
    staging_.threads->Run([this, file = std::shared_ptr<TierFileBuilder>(std::move(file))] {
      Note(file->Finish(), "").IgnoreError();
      pending_.Done();
    });
  }
  pending_.Wait();
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
