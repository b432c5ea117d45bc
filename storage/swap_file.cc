#include "storage/swap_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/status_macros.h"
#include "storage/aligned_buffer.h"
#include "storage/crc32c.h"

namespace tessera {
namespace {

absl::Status StatusOf(int error, const std::string& message) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

// A file that has a name only until this returns. Negative: errno.
int OpenUnnamed(const std::string& path, bool direct_io) {
  std::string name = path + "/swap.XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return -errno;
  unlink(name.c_str());
  if (!direct_io || fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_DIRECT) == 0) return file;
  const int error = errno;
  close(file);
  return -error;
}

// pread or pwrite until all is done. 0, or errno; EIO at the end of the file.
template <typename Call, typename Byte>
int Transfer(Call call, int file, Byte* data, int64_t size, int64_t offset) {
  while (size > 0) {
    const ssize_t done = call(file, data, size, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : EIO;
    data += done;
    size -= done;
    offset += done;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SwapFile>> SwapFile::Open(const SwapFileOptions& options) {
  for (const int64_t size : options.slot_size_bytes) {
    if (size < 0) {
      return absl::InvalidArgumentError(absl::StrCat(options.path, ": slot of ", size, " bytes"));
    }
  }
  std::error_code error;
  std::filesystem::create_directories(options.path, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat(options.path, ": create: ", error.message()));
  }
  const int file = OpenUnnamed(options.path, options.direct_io);
  if (file == -EINVAL) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.path, ": the file system does no direct IO"));
  }
  if (file < 0) {
    return StatusOf(-file, absl::StrCat(options.path, ": create: ", std::strerror(-file)));
  }
  std::unique_ptr<SwapFile> swap(new SwapFile(options, file));
  TESSERA_RETURN_IF_ERROR(swap->Reserve());
  return swap;
}

SwapFile::SwapFile(const SwapFileOptions& options, int file)
    : path_(options.path), file_(file), threads_(options.depth) {
  for (const int64_t size : options.slot_size_bytes) {
    slots_.push_back({size_bytes_, size});
    size_bytes_ += AlignUp(size);
  }
}

SwapFile::~SwapFile() {
  // Operations use the file.
  threads_.Join();
  close(file_);
}

absl::Status SwapFile::Reserve() {
  if (size_bytes_ == 0 || fallocate(file_, 0, 0, size_bytes_) == 0) return absl::OkStatus();
  int error = errno;
  if (error == EOPNOTSUPP) error = ftruncate(file_, size_bytes_) == 0 ? 0 : errno;
  if (error == 0) return absl::OkStatus();
  return StatusOf(error, absl::StrCat(path_, ": reserve ", size_bytes_,
                                      " bytes of swap: ", std::strerror(error)));
}

absl::Status SwapFile::FromErrno(int error, int slot, const char* operation) const {
  return StatusOf(
      error, absl::StrCat(path_, ": slot ", slot, ": ", operation, ": ", std::strerror(error)));
}

absl::Status SwapFile::CheckSlot(int slot) const {
  if (slot >= 0 && slot < num_slots()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": slot ", slot, ": there are ", num_slots()));
}

absl::Status SwapFile::StartWrite(int slot, absl::Span<const uint8_t> bytes, SwapDone done) {
  TESSERA_RETURN_IF_ERROR(CheckSlot(slot));
  if (static_cast<int64_t>(bytes.size()) > slots_[slot].size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": slot ", slot, ": ", bytes.size(),
                                                   " bytes, but it has ", slots_[slot].size_bytes));
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    slots_[slot].written_bytes = -1;
  }
  threads_.Run([this, slot, bytes, done = std::move(done)] {
    absl::Status status = Write(slot, bytes);
    if (done) done(std::move(status));
  });
  return absl::OkStatus();
}

absl::Status SwapFile::Write(int slot, absl::Span<const uint8_t> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t offset = slots_[slot].offset;
  const uint32_t crc = Crc32c(bytes);
  // What fills no whole block, or lies where it cannot be written from, is copied.
  const int64_t direct = IsAligned(bytes.data()) ? AlignDown(size) : 0;
  int error = Transfer(pwrite, file_, bytes.data(), direct, offset);
  if (error == 0 && direct < size) {
    const AlignedBuffer buffer(size - direct);
    std::memcpy(buffer.data(), bytes.data() + direct, size - direct);
    std::memset(buffer.data() + size - direct, 0, buffer.size_bytes() - (size - direct));
    error = Transfer(pwrite, file_, buffer.data(), buffer.size_bytes(), offset + direct);
  }
  if (error != 0) return FromErrno(error, slot, "write");
  std::lock_guard<std::mutex> lock(mutex_);
  slots_[slot].written_bytes = size;
  slots_[slot].crc = crc;
  return absl::OkStatus();
}

absl::Status SwapFile::StartRead(int slot, absl::Span<uint8_t> to, SwapDone done) {
  TESSERA_RETURN_IF_ERROR(CheckSlot(slot));
  uint32_t crc = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t written = slots_[slot].written_bytes;
    if (written < 0) {
      return absl::NotFoundError(absl::StrCat(path_, ": slot ", slot, " has not been written"));
    }
    if (written != static_cast<int64_t>(to.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": slot ", slot, " has ", written, " bytes, not ", to.size()));
    }
    crc = slots_[slot].crc;
  }
  threads_.Run([this, slot, to, crc, done = std::move(done)] {
    absl::Status status = Read(slot, to, crc);
    if (done) done(std::move(status));
  });
  return absl::OkStatus();
}

absl::Status SwapFile::Read(int slot, absl::Span<uint8_t> to, uint32_t crc) const {
  const auto size = static_cast<int64_t>(to.size());
  const int64_t offset = slots_[slot].offset;
  const int64_t direct = IsAligned(to.data()) ? AlignDown(size) : 0;
  int error = Transfer(pread, file_, to.data(), direct, offset);
  if (error == 0 && direct < size) {
    const AlignedBuffer buffer(size - direct);
    error = Transfer(pread, file_, buffer.data(), buffer.size_bytes(), offset + direct);
    if (error == 0) std::memcpy(to.data() + direct, buffer.data(), size - direct);
  }
  if (error != 0) return FromErrno(error, slot, "read");
  if (const uint32_t found = Crc32c(to); found != crc) {
    return absl::DataLossError(
        absl::StrFormat("%s: slot %d has crc32c %08x, not %08x", path_, slot, found, crc));
  }
  return absl::OkStatus();
}

}  // namespace tessera
