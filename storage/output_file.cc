#include "storage/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

std::string TemporaryPath(const std::string& path) { return path + ".partial"; }

absl::Status FromErrno(int error, const std::string& path, absl::string_view operation) {
  const std::string message = absl::StrCat(path, ": ", operation, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

// A rename is on the disk once its folder is.
absl::Status SyncFolderOf(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FromErrno(errno, folder, "open");
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : FromErrno(error, folder, "fsync");
}

// Reserves the file's blocks, or at least sets its size where the file system cannot.
int Reserve(int fd, int64_t size_bytes) {
  if (size_bytes == 0) return 0;
  if (fallocate(fd, 0, 0, size_bytes) == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  return ftruncate(fd, size_bytes) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path, int64_t size_bytes) {
  const std::string temporary = TemporaryPath(path);
  // A new file, so that a writer that still has the old one open cannot write into this one.
  if (unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    return FromErrno(errno, temporary, "unlink");
  }
  const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return FromErrno(errno, temporary, "create");
  OutputFile file(path, fd, size_bytes, /*owner=*/true);
  if (const int error = Reserve(fd, size_bytes); error != 0) {
    return FromErrno(error, temporary, absl::StrCat("reserve ", size_bytes, " bytes"));
  }
  return file;
}

absl::StatusOr<OutputFile> OutputFile::Join(const std::string& path, int64_t size_bytes) {
  const std::string temporary = TemporaryPath(path);
  const int fd = open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return FromErrno(errno, temporary, "open");
  OutputFile file(path, fd, size_bytes, /*owner=*/false);
  struct stat info;
  if (fstat(fd, &info) != 0) return FromErrno(errno, temporary, "fstat");
  if (info.st_size != size_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(temporary, ": has ", info.st_size, " bytes, not ", size_bytes));
  }
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_),
      owner_(std::exchange(other.owner_, false)) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (owner_) unlink(TemporaryPath(path_).c_str());
}

absl::Status OutputFile::WriteAt(int64_t offset_bytes, absl::Span<const uint8_t> bytes) {
  if (offset_bytes < 0 || static_cast<int64_t>(bytes.size()) > size_bytes_ - offset_bytes) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": ", bytes.size(), " bytes at ", offset_bytes,
                                              " reach beyond the file's ", size_bytes_));
  }
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), offset_bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      return FromErrno(errno, path_, "write");
    }
    bytes.remove_prefix(written);
    offset_bytes += written;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> OutputFile::ReadAt(int64_t offset_bytes, int64_t size_bytes) const {
  std::string bytes(size_bytes, '\0');
  int64_t done = 0;
  while (done < size_bytes) {
    const ssize_t got = pread(fd_, bytes.data() + done, size_bytes - done, offset_bytes + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(errno, path_, "read");
    if (got == 0) return absl::OutOfRangeError(absl::StrCat(path_, ": read beyond the end"));
    done += got;
  }
  return bytes;
}

absl::Status OutputFile::Sync() {
  return fsync(fd_) == 0 ? absl::OkStatus() : FromErrno(errno, path_, "fsync");
}

absl::Status OutputFile::Commit() {
  if (!owner_) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": only the writer that created the file commits it, once"));
  }
  TESSERA_RETURN_IF_ERROR(Sync());
  if (std::rename(TemporaryPath(path_).c_str(), path_.c_str()) != 0) {
    return FromErrno(errno, path_, "rename");
  }
  owner_ = false;
  return SyncFolderOf(path_);
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view content) {
  TESSERA_ASSIGN_OR_RETURN(OutputFile file,
                           OutputFile::Create(path, static_cast<int64_t>(content.size())));
  TESSERA_RETURN_IF_ERROR(
      file.WriteAt(0, {reinterpret_cast<const uint8_t*>(content.data()), content.size()}));
  return file.Commit();
}

}  // namespace tessera
