#include "storage/tier_database.h"

#include <rocksdb/convenience.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/no_log.h"

namespace tessera {
namespace {

constexpr char kValues[] = "values";

rocksdb::DBOptions DatabaseOptions(rocksdb::Env* env) {
  rocksdb::DBOptions options;
  options.env = env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // Every table stays open, so that a read of a value is one read of the disk.
  options.max_open_files = -1;
  options.info_log = std::make_shared<NoLog>();
  options.max_background_jobs = 2;
  // Else the log of records, which are small, takes 70 MiB of the disk, and the manifest 4.
  options.allow_fallocate = false;
  options.manifest_preallocation_size = 64 << 10;
  // A synced record is never dropped in silence because one before it is damaged.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // After an error the database is opened anew, by whoever uses it.
  options.max_bgerror_resume_count = 0;
  return options;
}

rocksdb::ColumnFamilyOptions RecordOptions() {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = 8 << 20;
  return options;
}

}  // namespace

absl::Status FromRocks(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

rocksdb::Options TierValueOptions(rocksdb::Env* env) {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  // Each value is a block of its own, so that it is read alone.
  table.block_size = 1;
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  rocksdb::Options options;
  options.env = env;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;
  options.write_buffer_size = 1 << 20;  // nothing is ever put in it
  return options;
}

absl::StatusOr<std::unique_ptr<TierDatabase>> TierDatabase::Open(const std::string& path,
                                                                 rocksdb::Env* env) {
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(
      DatabaseOptions(env), path,
      {{rocksdb::kDefaultColumnFamilyName, RecordOptions()}, {kValues, TierValueOptions(env)}},
      &families, &db);
  // A file is not there that another one names, whose name then is damaged.
  if (status.IsPathNotFound())
    return absl::DataLossError(absl::StrCat(path, ": ", status.ToString()));
  if (!status.ok()) return FromRocks(status, path);
  return std::unique_ptr<TierDatabase>(
      new TierDatabase(path, std::unique_ptr<rocksdb::DB>(db), std::move(families)));
}

TierDatabase::TierDatabase(std::string path, std::unique_ptr<rocksdb::DB> db,
                           std::vector<rocksdb::ColumnFamilyHandle*> families)
    : path_(std::move(path)), db_(std::move(db)), families_(std::move(families)) {}

TierDatabase::~TierDatabase() {
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  db_->Close().PermitUncheckedError();
}

absl::Status TierDatabase::Ingest(const std::vector<std::string>& paths) {
  rocksdb::IngestExternalFileOptions options;
  options.move_files = true;
  options.write_global_seqno = false;
  // Nothing is ever overwritten: were there a key, it would be an error.
  options.allow_blocking_flush = false;
  return FromRocks(db_->IngestExternalFile(families_[1], paths, options),
                   absl::StrCat(path_, ": ingest ", paths.size(), " files"));
}

absl::Status TierDatabase::DropFiles(const std::string& begin, const std::string& end) {
  const rocksdb::Slice begin_slice(begin), end_slice(end);
  const rocksdb::RangePtr range(&begin_slice, &end_slice);
  return FromRocks(rocksdb::DeleteFilesInRanges(db_.get(), families_[1], &range, 1,
                                                /*include_end=*/false),
                   absl::StrCat(path_, ": delete files"));
}

std::vector<TierDatabase::File> TierDatabase::Files() const {
  std::vector<rocksdb::LiveFileMetaData> live;
  db_->GetLiveFilesMetaData(&live);
  std::vector<File> files;
  for (const rocksdb::LiveFileMetaData& file : live) {
    if (file.column_family_name == kValues) {
      files.push_back(
          {file.smallestkey, absl::StrCat(file.directory, "/", file.relative_filename)});
    }
  }
  return files;
}

absl::Status TierDatabase::PutRecord(const std::string& key, const std::string& record) {
  rocksdb::WriteOptions options;
  options.sync = true;
  return FromRocks(db_->Put(options, families_[0], key, record),
                   absl::StrCat(path_, ": write a record"));
}

absl::Status TierDatabase::DeleteRecord(const std::string& key) {
  rocksdb::WriteOptions options;
  options.sync = true;
  return FromRocks(db_->Delete(options, families_[0], key),
                   absl::StrCat(path_, ": delete a record"));
}

absl::StatusOr<std::map<std::string, std::string>> TierDatabase::Records() const {
  std::map<std::string, std::string> records;
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}, families_[0]));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    records.emplace(it->key().ToString(), it->value().ToString());
  }
  absl::Status status = FromRocks(it->status(), path_);
  if (!status.ok()) return status;
  return records;
}

bool TierDatabase::has_background_error() const {
  uint64_t errors = 0;
  return db_->GetIntProperty("rocksdb.background-errors", &errors) && errors > 0;
}

}  // namespace tessera
