// Writes safetensors files: a layout that is a pure function of what is to be stored, then bytes
// at their final places, in any order and by any number of writers.
#ifndef TESSERA_STORAGE_SAFETENSORS_WRITER_H_
#define TESSERA_STORAGE_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"

namespace tessera {

struct SafetensorsSpec {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<uint64_t> shape;
};

struct SafetensorsLayout {
  std::string head;                        // all bytes before the data: length, JSON, spaces
  std::vector<SafetensorsTensor> tensors;  // by dtype (descending), then name: the file's order
  int64_t data_bytes = 0;

  int64_t file_bytes() const { return static_cast<int64_t>(head.size()) + data_bytes; }
};

// As the format's own library lays files out, so that equal contents are equal bytes.
// INVALID_ARGUMENT: a name twice, "__metadata__" or no UTF-8; a tensor of 2^61 bytes, data
// above 2^62, no whole number of bytes; a header above 100,000,000 bytes.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(
    std::vector<SafetensorsSpec> specs, const std::map<std::string, std::string>& metadata);

// One writer of a file. Thread-safe. Errors name the file and the tensor.
class SafetensorsWriter {
 public:
  // Creates the temporary file, whole but for the data.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  SafetensorsLayout layout);
  // Another process's file, to write some of its bytes. FAILED_PRECONDITION: it was created for
  // another layout.
  static absl::StatusOr<SafetensorsWriter> Join(const std::string& path, SafetensorsLayout layout);

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;

  const SafetensorsLayout& layout() const { return layout_; }

  // Bytes of a tensor from offset_bytes on. NOT_FOUND: no such tensor. OUT_OF_RANGE: beyond its
  // end. ALREADY_EXISTS: some of them have been written here.
  absl::Status Write(absl::string_view name, int64_t offset_bytes, absl::Span<const uint8_t> bytes);
  // What was written here is on the disk; returns its bytes, which Commit is told.
  absl::StatusOr<int64_t> Sync();
  // The file appears under its name. Only by the creator, once; the others have synced
  // bytes_by_others. FAILED_PRECONDITION: bytes are missing.
  absl::Status Commit(int64_t bytes_by_others = 0);

 private:
  SafetensorsWriter(OutputFile file, SafetensorsLayout layout);
  // Remembers data bytes [begin, end). ALREADY_EXISTS.
  absl::Status Mark(int64_t begin, int64_t end);
  // The first byte of the data that was not written, for a message.
  std::string FirstHoleLocked() const;

  SafetensorsLayout layout_;
  absl::flat_hash_map<std::string, size_t> index_;  // name to place in layout_.tensors
  OutputFile file_;
  std::mutex mutex_;
  std::map<int64_t, int64_t> written_;  // begin to end, none adjacent; guarded by mutex_
  int64_t bytes_written_ = 0;           // guarded by mutex_
  absl::Status failure_;                // the first write that failed: no Commit; guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_SAFETENSORS_WRITER_H_
