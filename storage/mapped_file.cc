#include "storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera {
namespace {

absl::Status FromErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError("no such file");
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError("may not be read");
    default:
      return absl::UnavailableError(std::strerror(error));
  }
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not hang.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FromErrno(errno);
  struct stat info;
  absl::Status status;
  void* data = nullptr;
  if (fstat(fd, &info) != 0) {
    status = FromErrno(errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError("is not a regular file");
  } else if (info.st_size > 0) {  // nothing can be mapped of an empty file
    data = mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) status = FromErrno(errno);
  }
  close(fd);
  if (!status.ok()) return status;
  return MappedFile(static_cast<const uint8_t*>(data), info.st_size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace tessera
