// safetensors files (huggingface/safetensors): u64 N, N bytes of JSON, then the tensors' bytes.
//
// A file is untrusted: nothing is allocated or read by what a header says before the header has
// been held against the file's size.
#ifndef TESSERA_STORAGE_SAFETENSORS_H_
#define TESSERA_STORAGE_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/mapped_file.h"

namespace tessera {

// In the format's order, by which files are laid out.
enum class SafetensorsDType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
int SafetensorsDTypeBits(SafetensorsDType dtype);          // of one element
const char* SafetensorsDTypeName(SafetensorsDType dtype);  // "F32"
std::optional<SafetensorsDType> SafetensorsDTypeFromName(absl::string_view name);

struct SafetensorsTensor {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<uint64_t> shape;  // row-major; empty: one element
  int64_t begin_bytes = 0;      // from the start of the data
  int64_t end_bytes = 0;

  int64_t size_bytes() const { return end_bytes - begin_bytes; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       // by offset; they tile the data
  std::map<std::string, std::string> metadata;  // "__metadata__"
  int64_t data_offset_bytes = 0;                // from the start of the file
};

// The reader of the format's own library refuses these, in this order; its name of each stands in
// parentheses at the end of the message.
// INVALID_ARGUMENT: less than 8 bytes; N above 100,000,000; N beyond the file; a header that is no
// UTF-8; bad JSON, unknown dtype, negative number, metadata that is no string, a duplicate key; a
// hole, overlap or negative size; a number of elements or bits beyond 64 bits; bits that fill no
// byte; a size that is not the shape's; data of another size than the file's.
absl::StatusOr<SafetensorsHeader> ParseSafetensors(absl::Span<const uint8_t> file);

// A mapped file. Move-only; reading is thread-safe.
class SafetensorsFile {
 public:
  // Errors of MappedFile and ParseSafetensors, with the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null if there is none of that name. Lives as long as the file's object stays where it is.
  const SafetensorsTensor* Find(absl::string_view name) const;
  // In the mapping, at any alignment. REQUIRES: a tensor of this file.
  absl::Span<const uint8_t> bytes(const SafetensorsTensor& tensor) const;

 private:
  SafetensorsFile(std::string path, MappedFile file, SafetensorsHeader header);

  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
  absl::flat_hash_map<std::string, size_t> index_;  // name to place in header_.tensors
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_SAFETENSORS_H_
