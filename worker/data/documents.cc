#include "worker/data/documents.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/json_reader.h"

namespace tessera {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

// Feeds documents to a tokenizer, or takes their bytes.
class Encoder {
 public:
  Encoder(const DocumentEncoding& encoding,
          absl::FunctionRef<absl::Status(absl::Span<const int32_t>)> sink)
      : encoding_(encoding), sink_(sink) {
    if (encoding.tokenizer != nullptr) {
      encoder_ = std::make_unique<TextEncoder>(*encoding.tokenizer, encoding.special);
    }
  }

  absl::Status Add(absl::string_view document) {
    for (size_t begin = 0; begin < document.size(); begin += kBlockBytes) {
      absl::Status status = Feed(document.substr(begin, kBlockBytes));
      if (status.ok()) status = Flush(kBlockBytes / 4);
      if (!status.ok()) return status;
    }
    if (encoder_ != nullptr) {
      absl::Status status = encoder_->Finish(&ids_);
      if (!status.ok()) return status;
    }
    if (encoding_.append_end_of_text) ids_.push_back(*encoding_.tokenizer->end_of_text());
    return Flush(kBlockBytes / 4);
  }

  // Passes on what is held, if it is more than `most` ids.
  absl::Status Flush(size_t most) {
    if (ids_.size() <= most) return absl::OkStatus();
    absl::Status status = sink_(ids_);
    ids_.clear();
    return status;
  }

 private:
  absl::Status Feed(absl::string_view block) {
    if (encoder_ != nullptr) return encoder_->Feed(block, &ids_);
    for (const char c : block) ids_.push_back(static_cast<uint8_t>(c));
    return absl::OkStatus();
  }

  const DocumentEncoding& encoding_;
  const absl::FunctionRef<absl::Status(absl::Span<const int32_t>)> sink_;
  std::unique_ptr<TextEncoder> encoder_;
  std::vector<int32_t> ids_;
};

}  // namespace

absl::StatusOr<std::string> ParseJsonLine(absl::string_view line, const std::string& text_field) {
  if (line.empty()) return absl::InvalidArgumentError("is empty, and not a JSON object");
  if (line.size() > kMaxJsonLineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", line.size(), " bytes, more than ", kMaxJsonLineBytes));
  }
  absl::StatusOr<JsonValue> value = ParseJsonValue(line, kDataJsonLimits);
  if (!value.ok()) return value.status();
  absl::Status status;
  std::string text = JsonObjectReader(*value, "", &status).String(text_field);
  if (!status.ok()) return status;
  return text;
}

absl::Status ForEachDocument(absl::string_view file, const DocumentFormat& format,
                             absl::FunctionRef<absl::Status(absl::string_view)> call) {
  if (!format.json_lines) return call(file);
  int64_t number = 0;
  for (size_t begin = 0; begin < file.size();) {
    const size_t end = std::min(file.find('\n', begin), file.size());
    ++number;
    absl::StatusOr<std::string> document =
        ParseJsonLine(file.substr(begin, end - begin), format.text_field);
    if (!document.ok()) {
      return absl::Status(
          document.status().code(),
          absl::StrCat("line ", number, " (byte ", begin, "): ", document.status().message()));
    }
    absl::Status status = call(*document);
    if (!status.ok()) return status;
    begin = end + 1;
  }
  return absl::OkStatus();
}

absl::Status EncodeDocuments(absl::string_view file, const DocumentFormat& format,
                             const DocumentEncoding& encoding,
                             absl::FunctionRef<absl::Status(absl::Span<const int32_t>)> sink) {
  Encoder encoder(encoding, sink);
  absl::Status status = ForEachDocument(
      file, format, [&](absl::string_view document) { return encoder.Add(document); });
  if (!status.ok()) return status;
  return encoder.Flush(0);
}

}  // namespace tessera
