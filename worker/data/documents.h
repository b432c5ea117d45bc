// Text files as documents, and documents as token ids.
#ifndef TESSERA_WORKER_DATA_DOCUMENTS_H_
#define TESSERA_WORKER_DATA_DOCUMENTS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/text_encoder.h"
#include "worker/data/tokenizer.h"

namespace tessera {

// How a file holds text: as one document, or as lines of JSON (jsonlines.org), each an object of
// which one field is a document.
struct DocumentFormat {
  bool json_lines = false;
  std::string text_field = "text";  // of json_lines
};

inline constexpr size_t kMaxJsonLineBytes = size_t{64} << 20;

// The document of one line, without its line break. INVALID_ARGUMENT: a line that is empty, longer
// than kMaxJsonLineBytes, no JSON object, or without the field or with anything but a string in it.
absl::StatusOr<std::string> ParseJsonLine(absl::string_view line, const std::string& text_field);

// Calls with the documents in order. A last line may do without its line break. The first error
// ends it: the callback's own, or ParseJsonLine's after "line N (byte B): ", N from 1.
absl::Status ForEachDocument(absl::string_view file, const DocumentFormat& format,
                             absl::FunctionRef<absl::Status(absl::string_view)> call);

// Encodes documents and passes their ids on in blocks, in order.
struct DocumentEncoding {
  const Tokenizer* tokenizer = nullptr;  // null: bytes are ids
  SpecialTokens special = SpecialTokens::kAsText;
  bool append_end_of_text = false;  // after each document; needs tokenizer->end_of_text()
};
// Errors are those of ForEachDocument, of TextEncoder and of `sink`.
absl::Status EncodeDocuments(absl::string_view file, const DocumentFormat& format,
                             const DocumentEncoding& encoding,
                             absl::FunctionRef<absl::Status(absl::Span<const int32_t>)> sink);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_DOCUMENTS_H_
