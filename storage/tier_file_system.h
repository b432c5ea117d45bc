// How RocksDB's files of values reach the disk: large direct writes and reads, around its buffers.
#ifndef TESSERA_STORAGE_TIER_FILE_SYSTEM_H_
#define TESSERA_STORAGE_TIER_FILE_SYSTEM_H_

#include <rocksdb/file_system.h>

#include <cstdint>
#include <memory>
#include <string>

#include "storage/aligned_buffer.h"

namespace tessera {

struct TierFileOptions {
  // Files that are created in this folder are written through one buffer of write_buffer_bytes
  // each; all others as `base` does.
  std::string staging_path;
  int64_t write_buffer_bytes = 0;
  // Off: through the page cache.
  bool direct_io = true;
};

// Forwards to base. Every table file (*.sst) is read directly.
std::shared_ptr<rocksdb::FileSystem> NewTierFileSystem(std::shared_ptr<rocksdb::FileSystem> base,
                                                       const TierFileOptions& options);

// While it lives, the next read of a table file by this thread that is of at least size_bytes goes
// into `buffer`, made as large as it needs, and RocksDB gets a view of it instead of a copy.
// REQUIRES: nothing that RocksDB keeps is read meanwhile (tables are open), and what it returns is
// not used after this object. At most one a thread.
class ScopedReadBuffer {
 public:
  ScopedReadBuffer(AlignedBuffer* buffer, int64_t size_bytes);
  ~ScopedReadBuffer();
  ScopedReadBuffer(const ScopedReadBuffer&) = delete;
  ScopedReadBuffer& operator=(const ScopedReadBuffer&) = delete;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_FILE_SYSTEM_H_
