// RocksDB without its LOG file.
#ifndef TESSERA_STORAGE_NO_LOG_H_
#define TESSERA_STORAGE_NO_LOG_H_

#include <rocksdb/env.h>

#include <cstdarg>
#include <memory>

namespace tessera {

// Drops all lines. The LOG lies on the disk whose errors are to be survived, and after the first
// that it meets there its next line ends the process (an assertion of the packaged library).
class NoLog : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_NO_LOG_H_
