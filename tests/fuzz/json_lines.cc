// JSON lines: as bytes, an accepted file gives exactly its documents' bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "worker/data/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  tessera::DocumentFormat format;
  format.json_lines = true;
  std::string documents;
  const absl::Status read = tessera::ForEachDocument(file, format, [&](absl::string_view document) {
    documents += std::string(document);
    return absl::OkStatus();
  });
  std::string encoded;
  const absl::Status status =
      tessera::EncodeDocuments(file, format, {}, [&](absl::Span<const int32_t> ids) {
        for (const int32_t id : ids) encoded.push_back(static_cast<char>(id));
        return absl::OkStatus();
      });
  FUZZ_CHECK(read.ok() == status.ok() && (!read.ok() || documents == encoded));
  return 0;
}
