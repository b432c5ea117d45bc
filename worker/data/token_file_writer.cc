#include "worker/data/token_file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/data/token_format.h"

namespace tessera {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

absl::Status FromErrno(int error, const std::string& path, const char* what) {
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message);
  }
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(const std::string& path,
                                                                         v1::DataFormat format,
                                                                         int64_t vocab_size) {
  if (format != v1::DATA_FORMAT_NANOGPT && format != v1::DATA_FORMAT_LLMC) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: ", v1::DataFormat_Name(format), ": must be nanogpt or llmc"));
  }
  // The finished file takes the place of what is there, which must not be a device or a folder.
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": exists and is not a regular file"));
  }
  std::string temporary = absl::StrCat(path, ".tmp-", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return FromErrno(errno, temporary, "cannot be made");
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter(path, std::move(temporary), fd));
  if (format == v1::DATA_FORMAT_LLMC) {
    writer->has_header_ = true;
    if (vocab_size > 1 << 16) writer->item_size_bytes_ = 4;
    writer->buffer_.resize(kLlmcHeaderBytes);  // filled in at the end
  }
  return writer;
}

TokenFileWriter::TokenFileWriter(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

TokenFileWriter::~TokenFileWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

absl::Status TokenFileWriter::SystemError(int error, const char* what) const {
  return FromErrno(error, temporary_, what);
}

absl::Status TokenFileWriter::Add(absl::Span<const int32_t> ids) {
  for (const int32_t id : ids) {
    if (item_size_bytes_ == 2 && id > std::numeric_limits<uint16_t>::max()) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": token ", num_tokens_, ": id ", id,
                                                " is above 65535, the largest of the format"));
    }
    if (has_header_ && num_tokens_ == std::numeric_limits<int32_t>::max()) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": token ", num_tokens_,
                                                ": the header of llmc counts no more; use shards"));
    }
    ++num_tokens_;
    uint8_t item[sizeof(id)];  // little-endian: the low bytes come first
    std::memcpy(item, &id, sizeof(id));
    buffer_.insert(buffer_.end(), item, item + item_size_bytes_);
    if (buffer_.size() < kBufferBytes) continue;
    absl::Status status = Flush();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Flush() {
  absl::Status status = WriteAll(buffer_.data(), buffer_.size(), written_bytes_);
  written_bytes_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
  return status;
}

absl::Status TokenFileWriter::WriteAll(const uint8_t* data, size_t size, int64_t offset) {
  while (size > 0) {
    const ssize_t written = pwrite(fd_, data, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(errno, "cannot be written");
    data += written;
    size -= static_cast<size_t>(written);
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Finish() {
  absl::Status status = Flush();
  if (!status.ok()) return status;
  if (has_header_) {
    const bool is_gpt2 = item_size_bytes_ == 2;
    const int32_t words[] = {is_gpt2 ? kLlmcGpt2Magic : kLlmcLlama3Magic,
                             is_gpt2 ? kLlmcGpt2Version : kLlmcLlama3Version,
                             static_cast<int32_t>(num_tokens_)};
    status = WriteAll(reinterpret_cast<const uint8_t*>(words), sizeof(words), 0);
    if (!status.ok()) return status;
  }
  if (fsync(fd_) != 0) return SystemError(errno, "cannot be brought to the disk");
  if (rename(temporary_.c_str(), path_.c_str()) != 0)
    return SystemError(errno, "cannot be renamed");
  close(fd_);
  fd_ = -1;
  // The name, too, is to survive a crash.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const int folder_fd =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return FromErrno(errno, folder.string(), "cannot be opened");
  const int synced = fsync(folder_fd);
  const int error = errno;
  close(folder_fd);
  if (synced != 0) return FromErrno(error, folder.string(), "cannot be brought to the disk");
  return absl::OkStatus();
}

}  // namespace tessera
