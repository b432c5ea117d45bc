#include "coordinator/journal.h"

#include "absl/strings/str_cat.h"
#include "proto/rpc/resource_name.h"

namespace tessera {
namespace {

constexpr char kHeader[] = "header";
constexpr int kFormatVersion = 1;
constexpr int64_t kRevisionBlock = 10000;

std::string JobKey(const v1::TrainingJob& job) {
  return absl::StrCat("job/", job.name().substr(JobName("").size()));
}

std::string ShardsKey(const v1::TrainingJob& job) {
  return absl::StrCat("shards/", job.name().substr(JobName("").size()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(KeyValueStore* store) {
  std::unique_ptr<Journal> journal(new Journal(store));
  absl::StatusOr<std::string> text = store->Get(kHeader);
  if (text.ok()) {
    v1::JournalHeader header;
    if (!header.ParseFromString(*text)) return absl::DataLossError("journal: header is corrupt");
    if (header.format_version() != kFormatVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("journal: format ", header.format_version(), " is not ", kFormatVersion));
    }
    journal->next_revision_ = journal->revision_bound_ = header.revision_bound();
  } else if (text.status().code() != absl::StatusCode::kNotFound) {
    return text.status();
  }
  return journal;
}

absl::StatusOr<std::vector<v1::TrainingJob>> Journal::LoadJobs() const {
  std::vector<v1::TrainingJob> jobs;
  std::string corrupt;
  absl::Status status = store_->Scan("job/", [&](absl::string_view key, absl::string_view value) {
    v1::TrainingJob job;
    if (!job.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
      corrupt = std::string(key);
      return false;
    }
    jobs.push_back(std::move(job));
    return true;
  });
  if (!status.ok()) return status;
  if (!corrupt.empty())
    return absl::DataLossError(absl::StrCat("journal: ", corrupt, " is corrupt"));
  return jobs;
}

absl::StatusOr<v1::RequestRecord> Journal::FindRequest(const std::string& request_id) const {
  absl::StatusOr<std::string> text = store_->Get(absl::StrCat("request/", request_id));
  if (!text.ok()) return text.status();
  v1::RequestRecord record;
  if (!record.ParseFromString(*text)) {
    return absl::DataLossError(absl::StrCat("journal: request ", request_id, " is corrupt"));
  }
  return record;
}

absl::Status Journal::Create(const v1::TrainingJob& job, const std::string& request_id,
                             const v1::RequestRecord& record) {
  WriteBatch batch;
  batch.Put(JobKey(job), job.SerializeAsString());
  if (!request_id.empty()) {
    batch.Put(absl::StrCat("request/", request_id), record.SerializeAsString());
  }
  return store_->Write(batch, Durability::kSynced);
}

absl::Status Journal::Update(const v1::TrainingJob& job, Durability durability) {
  WriteBatch batch;
  batch.Put(JobKey(job), job.SerializeAsString());
  return store_->Write(batch, durability);
}

absl::StatusOr<v1::JobShards> Journal::LoadShards(const v1::TrainingJob& job) const {
  absl::StatusOr<std::string> text = store_->Get(ShardsKey(job));
  v1::JobShards shards;
  if (absl::IsNotFound(text.status())) return shards;
  if (!text.ok()) return text.status();
  if (!shards.ParseFromString(*text)) {
    return absl::DataLossError(absl::StrCat("journal: ", ShardsKey(job), " is corrupt"));
  }
  return shards;
}

absl::Status Journal::UpdateShards(const v1::TrainingJob& job, const v1::JobShards& shards) {
  WriteBatch batch;
  if (shards.ranks().empty()) {
    batch.Delete(ShardsKey(job));
  } else {
    batch.Put(ShardsKey(job), shards.SerializeAsString());
  }
  return store_->Write(batch, Durability::kBuffered);
}

absl::StatusOr<int64_t> Journal::NextRevision() {
  if (next_revision_ >= revision_bound_) {
    v1::JournalHeader header;
    header.set_format_version(kFormatVersion);
    header.set_revision_bound(next_revision_ + kRevisionBlock);
    WriteBatch batch;
    batch.Put(kHeader, header.SerializeAsString());
    absl::Status status = store_->Write(batch, Durability::kSynced);
    if (!status.ok()) return status;
    revision_bound_ = header.revision_bound();
  }
  return next_revision_++;
}

}  // namespace tessera
