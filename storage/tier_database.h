// RocksDB as the nvme tier uses it: files of values, ingested and dropped as wholes, and one small
// record for each committed step.
#ifndef TESSERA_STORAGE_TIER_DATABASE_H_
#define TESSERA_STORAGE_TIER_DATABASE_H_

#include <rocksdb/db.h>
#include <rocksdb/file_system.h>
#include <rocksdb/options.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// What RocksDB says, with `what` (a path, a step) before it: NOT_FOUND, DATA_LOSS,
// RESOURCE_EXHAUSTED (no space), else UNAVAILABLE.
absl::Status FromRocks(const rocksdb::Status& status, absl::string_view what);

// Options of files of values, for those who build them and for the database.
rocksdb::Options TierValueOptions(rocksdb::Env* env);

// One open database. Called by one thread at a time. After an error it may refuse to go
// on: open it anew.
class TierDatabase {
 public:
  // `env` outlives it.
  static absl::StatusOr<std::unique_ptr<TierDatabase>> Open(const std::string& path,
                                                            rocksdb::Env* env);
  ~TierDatabase();

  // Makes files that were built with TierValueOptions, and synced, part of the database, all or
  // none, and durably; takes them away from where they are.
  absl::Status Ingest(const std::vector<std::string>& paths);
  // Removes every file whose keys all are in [begin, end), durably.
  absl::Status DropFiles(const std::string& begin, const std::string& end);
  struct File {
    std::string first_key, path;
  };
  // Of values.
  std::vector<File> Files() const;

  // Synced.
  absl::Status PutRecord(const std::string& key, const std::string& record);
  absl::Status DeleteRecord(const std::string& key);
  absl::StatusOr<std::map<std::string, std::string>> Records() const;

  // Something failed in the background.
  bool has_background_error() const;

 private:
  TierDatabase(std::string path, std::unique_ptr<rocksdb::DB> db,
               std::vector<rocksdb::ColumnFamilyHandle*> families);

  const std::string path_;
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;  // records, values
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_DATABASE_H_
