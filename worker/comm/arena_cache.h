// The device arenas of other processes, mapped here once for all groups.
#ifndef TESSERA_WORKER_COMM_ARENA_CACHE_H_
#define TESSERA_WORKER_COMM_ARENA_CACHE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "worker/comm/membership.h"
#include "worker/comm/socket.h"

namespace tessera {

// Thread-safe. A mapping goes when the last region on it does, also after the cache.
class ArenaCache {
 public:
  // The arena of transport `instance`, mapped unless it is already. INVALID_ARGUMENT unless memfd's
  // size is sealed: a peer that shrank it would crash this process. RESOURCE_EXHAUSTED where the
  // system refuses the mapping.
  absl::StatusOr<Region> Map(const std::string& instance, const UniqueFd& memfd);

 private:
  struct Mapping;

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Mapping>> mappings_ ABSL_GUARDED_BY(mutex_);
};

// A board's memory: a sealed memfd of `size_bytes` zeroes, and a mapping of such a one.
absl::StatusOr<UniqueFd> CreateSharedMemory(int64_t size_bytes);
absl::StatusOr<Region> MapSharedMemory(const UniqueFd& memfd);

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_ARENA_CACHE_H_
