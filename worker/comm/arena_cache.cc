#include "worker/comm/arena_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tessera {

struct ArenaCache::Mapping {
  Region region;
};

absl::StatusOr<UniqueFd> CreateSharedMemory(int64_t size_bytes) {
  UniqueFd fd(memfd_create("tessera-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open() || ftruncate(fd.get(), size_bytes) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory of ", size_bytes, " bytes: ", strerror(errno)));
  }
  return fd;
}

absl::StatusOr<Region> MapSharedMemory(const UniqueFd& memfd) {
  struct stat file = {};
  const int seals = fcntl(memfd.get(), F_GET_SEALS);
  if (fstat(memfd.get(), &file) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("a peer's memory is not a memfd of sealed size");
  }
  const int64_t size_bytes = file.st_size;
  void* base =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd.get(), 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mapping ", size_bytes, " bytes of a peer: ", strerror(errno)));
  }
  std::shared_ptr<const void> mapping(
      base, [size_bytes](const void* address) { munmap(const_cast<void*>(address), size_bytes); });
  return Region{static_cast<char*>(base), size_bytes, std::move(mapping)};
}

absl::StatusOr<Region> ArenaCache::Map(const std::string& instance, const UniqueFd& memfd) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(mappings_, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<Mapping> mapping = mappings_[instance].lock();
  if (mapping == nullptr) {
    absl::StatusOr<Region> region = MapSharedMemory(memfd);
    if (!region.ok()) return region;
    mapping = std::make_shared<Mapping>(Mapping{*std::move(region)});
    mappings_[instance] = mapping;
  }
  return Region{mapping->region.base, mapping->region.size_bytes, mapping};
}

}  // namespace tessera
