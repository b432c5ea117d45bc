// One file of values, before it is part of the database.
#ifndef TESSERA_STORAGE_TIER_FILE_BUILDER_H_
#define TESSERA_STORAGE_TIER_FILE_BUILDER_H_

#include <rocksdb/env.h>
#include <rocksdb/sst_file_writer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "storage/staged_file.h"
#include "storage/tier_value.h"

namespace tessera {

// Builds the file-th file of a step; values are ordered as they come. Not thread-safe. Whoever
// made it deletes the file.
class TierFileBuilder {
 public:
  // `env` outlives it.
  static absl::StatusOr<std::unique_ptr<TierFileBuilder>> Create(const std::string& path,
                                                                 rocksdb::Env* env,
                                                                 std::string step_prefix,
                                                                 uint32_t file);

  struct Place {
    TierPlace place;
    int64_t offset = 0;  // of the bytes in the file
  };
  // done is called once, with an error or when `bytes` are no longer read: before Add returns,
  // or on another thread. Aligned bytes of large values are written from where they are.
  // REQUIRES: no error before, not finished.
  absl::StatusOr<Place> Add(const TierValueHeader& header, absl::Span<const uint8_t> bytes,
                            std::function<void(absl::Status)> done);
  // The file is whole, and on the disk.
  absl::Status Finish();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  TierFileBuilder(const std::string& path, rocksdb::Env* env, std::string step_prefix,
                  uint32_t file);
  absl::Status Put(TierPlace place, const TierValueHeader& header, absl::Span<const uint8_t> bytes);
  absl::Status PutLarge(TierPlace place, const TierValueHeader& header, AppendTwin* twin,
                        absl::Span<const uint8_t> bytes, int64_t* offset);

  const std::string path_;
  const std::string step_prefix_;
  const uint32_t file_;
  uint32_t next_ordinal_ = 0;
  int64_t size_bytes_ = 0;
  int64_t open_block_bytes_ = 0;  // of the last block, which RocksDB has not yet written
  rocksdb::SstFileWriter writer_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_FILE_BUILDER_H_
