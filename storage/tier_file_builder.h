// One file of values, before it is part of the database.
#ifndef TESSERA_STORAGE_TIER_FILE_BUILDER_H_
#define TESSERA_STORAGE_TIER_FILE_BUILDER_H_

#include <rocksdb/env.h>
#include <rocksdb/sst_file_writer.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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

  // The bytes have been copied when it returns. REQUIRES: no error before, not finished.
  absl::StatusOr<TierPlace> Add(const TierValueHeader& header, absl::Span<const uint8_t> bytes);
  // The file is whole, and on the disk.
  absl::Status Finish();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  TierFileBuilder(const std::string& path, rocksdb::Env* env, std::string step_prefix,
                  uint32_t file);
  absl::Status AddEnd(uint32_t ordinal);

  const std::string path_;
  const std::string step_prefix_;
  const uint32_t file_;
  uint32_t next_ordinal_ = 1;
  int64_t size_bytes_ = 0;
  rocksdb::SstFileWriter writer_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_FILE_BUILDER_H_
