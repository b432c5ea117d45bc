// How RocksDB's files of values reach the disk: large direct writes and reads, around its buffers.
#ifndef TESSERA_STORAGE_TIER_FILE_SYSTEM_H_
#define TESSERA_STORAGE_TIER_FILE_SYSTEM_H_

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

#include "storage/staged_file.h"

namespace tessera {

struct TierFileOptions {
  // Files that are made in this folder are StagedFiles; all others are as `base` makes them.
  std::string staging_path;
  StagedFile::Options staged;
};

// Forwards to base. Where direct_io is on, every table file (*.sst) is read directly; reads into
// aligned memory, of aligned ranges, are not copied.
std::shared_ptr<rocksdb::FileSystem> NewTierFileSystem(std::shared_ptr<rocksdb::FileSystem> base,
                                                       const TierFileOptions& options);

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_FILE_SYSTEM_H_
