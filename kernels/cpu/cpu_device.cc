#include "kernels/cpu/cpu_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/huge_pages.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

class CpuEvent : public Event {
 public:
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

class CpuStream : public Stream {
 public:
  explicit CpuStream(CpuDevice& device) : device_(device) {}
  Device& device() const override { return device_; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Event>> RecordEvent() override {
    return std::make_unique<CpuEvent>();
  }
  absl::Status WaitEvent(Event&) override { return absl::OkStatus(); }

 private:
  CpuDevice& device_;
};

absl::Status CheckCopy(absl::string_view operation, const Tensor& tensor, int64_t size_bytes) {
  if (!tensor.is_contiguous() || tensor.size_bytes() != size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", size_bytes, " bytes and ",
                                                   tensor.ToString(), " of ", tensor.size_bytes(),
                                                   " bytes do not match"));
  }
  return absl::OkStatus();
}

absl::Status MappingError(absl::string_view name, int64_t bytes, int error) {
  return absl::ResourceExhaustedError(
      absl::StrCat(name, ": mapping ", bytes, " bytes of memory: ", strerror(error)));
}

struct Mapping {
  int memfd = -1;
  void* base = nullptr;
};

absl::StatusOr<Mapping> MapShared(absl::string_view name, int64_t bytes) {
  const int fd = memfd_create("tessera-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    return absl::ResourceExhaustedError(absl::StrCat(name, ": memfd_create: ", strerror(errno)));
  // The size is sealed, so that a peer that maps the arena can never be shrunk into a SIGBUS.
  if (ftruncate(fd, bytes) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(fd);
    return MappingError(name, bytes, error);
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return MappingError(name, bytes, error);
  }
  return Mapping{fd, base};
}

absl::StatusOr<Mapping> MapHugePages(absl::string_view name, int64_t bytes) {
  const int64_t room = bytes + kHugePageBytes;
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return MappingError(name, bytes, errno);
  auto* const begin = static_cast<uint8_t*>(mapped);
  const auto address = reinterpret_cast<uint64_t>(mapped);
  const int64_t skip = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  uint8_t* const base = begin + skip;
  if (skip > 0) munmap(begin, skip);
  if (skip < kHugePageBytes) munmap(base + bytes, kHugePageBytes - skip);
  PreferHugePages(base, bytes);
  return Mapping{-1, base};
}

void* Pointer(const Tensor& tensor) { return reinterpret_cast<void*>(tensor.address()); }

}  // namespace

absl::StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::Create(std::string name,
                                                             int64_t capacity_bytes,
                                                             int num_threads, CpuMemory memory) {
  if (capacity_bytes < 1 || num_threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": memory of ", capacity_bytes,
                                                   " bytes with ", num_threads,
                                                   " threads: both must be at least 1"));
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t bytes = (capacity_bytes + page - 1) / page * page;
  TESSERA_ASSIGN_OR_RETURN(const Mapping mapping, memory == CpuMemory::kShared
                                                      ? MapShared(name, bytes)
                                                      : MapHugePages(name, bytes));
  return std::unique_ptr<CpuDevice>(
      new CpuDevice(std::move(name), mapping.memfd, mapping.base, bytes, num_threads));
}

CpuDevice::CpuDevice(std::string name, int memfd, void* base, int64_t mapped_bytes, int num_threads)
    : name_(std::move(name)),
      memfd_(memfd),
      base_(base),
      mapped_bytes_(mapped_bytes),
      num_threads_(num_threads),
      arena_(name_, mapped_bytes) {}

absl::Status CpuDevice::LockPages() {
  if (mlock2(base_, mapped_bytes_, MLOCK_ONFAULT) == 0) return absl::OkStatus();
  const int error = errno;
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return absl::ResourceExhaustedError(
      absl::StrCat(name_, ": locking ", mapped_bytes_, " bytes of pages: ", strerror(error),
                   "; the limit is ", limit.rlim_cur, " bytes (ulimit -l)"));
}

CpuDevice::~CpuDevice() {
  munmap(base_, mapped_bytes_);
  if (memfd_ >= 0) close(memfd_);
}

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::CreateStream() {
  return std::make_unique<CpuStream>(*this);
}

absl::Status CpuDevice::CopyIn(const void* host, int64_t size_bytes, const Tensor& to, Stream&) {
  absl::Status status = CheckCopy("copy in", to, size_bytes);
  if (status.ok() && size_bytes > 0) std::memcpy(Pointer(to), host, size_bytes);
  return status;
}

absl::Status CpuDevice::CopyOut(const Tensor& from, void* host, int64_t size_bytes, Stream&) {
  absl::Status status = CheckCopy("copy out", from, size_bytes);
  if (status.ok() && size_bytes > 0) std::memcpy(host, Pointer(from), size_bytes);
  return status;
}

absl::Status CpuDevice::Copy(const Tensor& from, const Tensor& to, Stream&) {
  absl::Status status = CheckCopy("copy from", from, to.size_bytes());
  if (status.ok()) status = CheckCopy("copy to", to, from.size_bytes());
  if (status.ok() && from.size_bytes() > 0) {
    std::memcpy(Pointer(to), Pointer(from), from.size_bytes());
  }
  return status;
}

absl::Status CpuDevice::SetZero(const Tensor& tensor, Stream&) {
  absl::Status status = CheckCopy("set zero", tensor, tensor.size_bytes());
  if (status.ok() && tensor.size_bytes() > 0) std::memset(Pointer(tensor), 0, tensor.size_bytes());
  return status;
}

}  // namespace tessera
