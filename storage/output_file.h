// A file that appears under its name whole or not at all.
#ifndef TESSERA_STORAGE_OUTPUT_FILE_H_
#define TESSERA_STORAGE_OUTPUT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// Writes PATH.partial, which Commit renames. Move-only. WriteAt is thread-safe.
// Errors name the file: RESOURCE_EXHAUSTED without space, NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE
// for other errors of the system.
class OutputFile {
 public:
  // Of exactly size_bytes, reserved on the disk now where the file system can. What an earlier,
  // broken-off writer has left under the temporary name is removed.
  static absl::StatusOr<OutputFile> Create(const std::string& path, int64_t size_bytes);
  // The temporary file that another process has created, to write into as well.
  // FAILED_PRECONDITION: it has another size.
  static absl::StatusOr<OutputFile> Join(const std::string& path, int64_t size_bytes);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  // Without Commit, a file that this object created is removed.
  ~OutputFile();

  const std::string& path() const { return path_; }
  // OUT_OF_RANGE: beyond the size.
  absl::Status WriteAt(int64_t offset_bytes, absl::Span<const uint8_t> bytes);
  // Of the temporary file.
  absl::StatusOr<std::string> ReadAt(int64_t offset_bytes, int64_t size_bytes) const;
  // What this object wrote is on the disk.
  absl::Status Sync();
  // Sync, rename to path, sync the folder. Once; only by the creator.
  absl::Status Commit();

 private:
  OutputFile(std::string path, int fd, int64_t size_bytes, bool owner)
      : path_(std::move(path)), fd_(fd), size_bytes_(size_bytes), owner_(owner) {}

  std::string path_;  // final
  int fd_;            // -1: moved from
  int64_t size_bytes_;
  bool owner_;  // creator, before Commit
};

// A small file, whole.
absl::Status WriteWholeFile(const std::string& path, absl::string_view content);

}  // namespace tessera

#endif  // TESSERA_STORAGE_OUTPUT_FILE_H_
