#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/key_value_store.h"
#include "storage/no_log.h"

namespace tessera {
namespace {

absl::Status FromRocks(const rocksdb::Status& status, const std::string& path) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(path, ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

rocksdb::Slice Slice(absl::string_view text) { return rocksdb::Slice(text.data(), text.size()); }

class RocksKeyValueStore : public KeyValueStore {
 public:
  RocksKeyValueStore(std::string path, std::unique_ptr<rocksdb::DB> db)
      : path_(std::move(path)), db_(std::move(db)) {}

  absl::Status Write(const WriteBatch& batch, Durability durability) override {
    rocksdb::WriteBatch changes;
    for (const WriteBatch::Change& change : batch.changes()) {
      if (change.value.has_value()) {
        changes.Put(change.key, *change.value);
      } else {
        changes.Delete(change.key);
      }
    }
    rocksdb::WriteOptions options;
    options.sync = durability == Durability::kSynced;
    return FromRocks(db_->Write(options, &changes), path_);
  }

  absl::StatusOr<std::string> Get(absl::string_view key) const override {
    std::string value;
    absl::Status status =
        FromRocks(db_->Get({}, Slice(key), &value), absl::StrCat(path_, " ", key));
    if (!status.ok()) return status;
    return value;
  }

  absl::Status Scan(
      absl::string_view prefix,
      const std::function<bool(absl::string_view, absl::string_view)>& visit) const override {
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    for (it->Seek(Slice(prefix)); it->Valid(); it->Next()) {
      absl::string_view key(it->key().data(), it->key().size());
      if (!absl::StartsWith(key, prefix)) break;
      if (!visit(key, absl::string_view(it->value().data(), it->value().size()))) break;
    }
    return FromRocks(it->status(), path_);
  }

 private:
  const std::string path_;
  const std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeyValueStore>> OpenRocksKeyValueStore(const std::string& path) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.info_log = std::make_shared<NoLog>();
  options.paranoid_checks = true;
  // A journal is small; one thread and small buffers suffice.
  options.write_buffer_size = 8 << 20;
  options.max_background_jobs = 2;
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options, path, &db);
  if (status.IsIOError() && absl::StrContains(status.ToString(), "lock")) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another process holds this folder: ", status.ToString()));
  }
  absl::Status converted = FromRocks(status, path);
  if (!converted.ok()) return converted;
  return std::make_unique<RocksKeyValueStore>(path, std::unique_ptr<rocksdb::DB>(db));
}

}  // namespace tessera
