// A file mapped for reading.
#ifndef TESSERA_STORAGE_MAPPED_FILE_H_
#define TESSERA_STORAGE_MAPPED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera {

// Owns the mapping. Move-only; reading is thread-safe. A file that another process shortens while
// it is mapped ends this process (SIGBUS), as with any mapped file: replace data files by renaming.
class MappedFile {
 public:
  // Regular files only, empty ones too. NOT_FOUND; INVALID_ARGUMENT for a folder or device;
  // PERMISSION_DENIED; UNAVAILABLE for other errors of the system. Messages lack the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  MappedFile(const uint8_t* data, int64_t size) : data_(data), size_(size) {}

  const uint8_t* data_;
  int64_t size_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_MAPPED_FILE_H_
