#include "worker/data/token_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "storage/mapped_file.h"
#include "worker/data/data_root.h"
#include "worker/data/documents.h"
#include "worker/data/token_format.h"
#include "worker/data/tokenizer_files.h"

namespace tessera {
namespace {

// Tokens as they lie in a file.
class MappedTokenSource : public TokenSource {
 public:
  MappedTokenSource(MappedFile file, TokenLayout layout)
      : file_(std::move(file)), layout_(layout) {}
  int64_t num_tokens() const override { return layout_.num_tokens; }
  void Read(int64_t begin, absl::Span<int32_t> tokens) const override {
    ReadTokens(layout_, file_.bytes(), begin, tokens);
  }

 private:
  const MappedFile file_;
  const TokenLayout layout_;
};

// Tokens encoded into host memory.
class EncodedTokenSource : public TokenSource {
 public:
  EncodedTokenSource(std::vector<uint8_t> bytes, TokenLayout layout)
      : bytes_(std::move(bytes)), layout_(layout) {}
  int64_t num_tokens() const override { return layout_.num_tokens; }
  void Read(int64_t begin, absl::Span<int32_t> tokens) const override {
    ReadTokens(layout_, bytes_, begin, tokens);
  }

 private:
  const std::vector<uint8_t> bytes_;
  const TokenLayout layout_;
};

absl::StatusOr<MappedFile> OpenInsideRoot(const TokenSourceOptions& options,
                                          const std::string& path) {
  absl::StatusOr<std::string> resolved = ResolveInsideRoot(options.data_root, path, options.field);
  if (!resolved.ok()) return resolved.status();
  absl::StatusOr<MappedFile> file = MappedFile::Open(*resolved);
  if (!file.ok()) {
    return FieldError(file.status().code(), options.field, path, file.status().message());
  }
  if (file->bytes().empty()) return InvalidField(options.field, path, "is empty");
  return file;
}

absl::Status TooFewTokens(const TokenSourceOptions& options, int64_t num_tokens) {
  return InvalidField(options.field, options.path,
                      absl::StrCat("has ", num_tokens, " tokens, fewer than the ",
                                   options.min_tokens, " of one sequence and its last target"));
}

// `position` says where the token is in `file`.
absl::Status BadId(const TokenSourceOptions& options, const std::string& file, int64_t index,
                   absl::string_view position, int64_t id) {
  return InvalidField(options.field, file,
                      absl::StrCat("token ", index, position, " is ", id,
                                   ", not below spec.model.vocab_size (", options.vocab_size, ")"));
}

absl::StatusOr<std::unique_ptr<TokenSource>> OpenMapped(const TokenSourceOptions& options) {
  const bool is_megatron = options.format == v1::DATA_FORMAT_MEGATRON;
  const std::string path = is_megatron ? options.path + ".bin" : options.path;
  absl::StatusOr<MappedFile> file = OpenInsideRoot(options, path);
  if (!file.ok()) return file.status();
  absl::StatusOr<TokenLayout> layout;
  if (is_megatron) {
    absl::StatusOr<MappedFile> index = OpenInsideRoot(options, options.path + ".idx");
    if (!index.ok()) return index.status();
    layout = ParseMegatronIndex(index->bytes(), static_cast<int64_t>(file->bytes().size()));
  } else {
    layout = ParseTokenLayout(options.format, file->bytes());
  }
#include "storage/mapped_file.h"
  if (!layout.ok()) return InvalidField(options.field, options.path, layout.status().message());
  if (layout->num_tokens < options.min_tokens) return TooFewTokens(options, layout->num_tokens);
  const IdViolation bad = FindIdOutside(*layout, file->bytes(), options.vocab_size);
  if (bad.index >= 0) {
    return BadId(options, path, bad.index, absl::StrCat(" (byte ", bad.byte_offset, ")"), bad.id);
  }
  return std::make_unique<MappedTokenSource>(*std::move(file), *layout);
}

// Collects encoded tokens, of a type that holds every id of the vocabulary.
class TokenCollector {
 public:
  // With keep = false only counts and checks.
  TokenCollector(const TokenSourceOptions& options, bool keep) : options_(options), keep_(keep) {
    if (options.vocab_size > 1 << 8) layout_.type = TokenType::kU16;
    if (options.vocab_size > 1 << 16) layout_.type = TokenType::kI32;
  }

  absl::Status Add(absl::Span<const int32_t> ids) {
    const int size = SizeBytes(layout_.type);
    for (const int32_t id : ids) {
      if (id >= options_.vocab_size) {
        return BadId(options_, options_.path, layout_.num_tokens, " of its encoding", id);
      }
      ++layout_.num_tokens;
      if (!keep_) continue;
      uint8_t item[sizeof(id)];  // little-endian: the low bytes come first
      std::memcpy(item, &id, sizeof(id));
      bytes_.insert(bytes_.end(), item, item + size);
    }
    return absl::OkStatus();
  }

  int64_t num_tokens() const { return layout_.num_tokens; }
  std::unique_ptr<TokenSource> Take() {
    bytes_.shrink_to_fit();
    return std::make_unique<EncodedTokenSource>(std::move(bytes_), layout_);
  }

 private:
  const TokenSourceOptions& options_;
  const bool keep_;
  TokenLayout layout_;
  std::vector<uint8_t> bytes_;
};

// The first `limit` bytes, of lines up to the last that is whole.
absl::string_view Beginning(absl::string_view text, int64_t limit, bool lines) {
  if (static_cast<int64_t>(text.size()) <= limit) return text;
  text = text.substr(0, limit);
  return lines ? text.substr(0, text.rfind('\n') + 1) : text;
}

// Null if only a check of the first `limit` bytes was asked for (limit >= 0).
absl::StatusOr<std::unique_ptr<TokenSource>> OpenEncoded(const TokenSourceOptions& options,
                                                         int64_t limit) {
  absl::StatusOr<MappedFile> file = OpenInsideRoot(options, options.path);
  if (!file.ok()) return file.status();
  const absl::string_view all(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  const bool is_check = limit >= 0;
  DocumentFormat format;
  format.json_lines = options.format == v1::DATA_FORMAT_JSONL;
  format.text_field = options.text_field;
  const absl::string_view text = is_check ? Beginning(all, limit, format.json_lines) : all;
  DocumentEncoding encoding;
  encoding.tokenizer = options.tokenizer;
  encoding.append_end_of_text = format.json_lines && options.tokenizer != nullptr &&
                                options.tokenizer->end_of_text().has_value();
  TokenCollector tokens(options, !is_check);
  absl::Status status;
  const absl::Status encoded =
      EncodeDocuments(text, format, encoding, [&](absl::Span<const int32_t> ids) {
        if (options.check_stop) status = options.check_stop();
        if (status.ok()) status = tokens.Add(ids);
        return status;
      });
  if (!status.ok()) return status;
  if (!encoded.ok()) return InvalidField(options.field, options.path, encoded.message());
  if (tokens.num_tokens() < options.min_tokens && text.size() == all.size()) {
    return TooFewTokens(options, tokens.num_tokens());
  }
  return is_check ? nullptr : tokens.Take();
}

bool IsEncoded(const TokenSourceOptions& options) {
  return options.format == v1::DATA_FORMAT_JSONL ||
         (options.format == v1::DATA_FORMAT_TEXT && options.tokenizer != nullptr);
}

absl::StatusOr<std::unique_ptr<TokenSource>> Open(const TokenSourceOptions& options,
                                                  int64_t text_limit) {
  return IsEncoded(options) ? OpenEncoded(options, text_limit) : OpenMapped(options);
}

// text_limit as in OpenEncoded.
// NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of a unique_ptr in a
// StatusOr.
absl::StatusOr<JobData> Open(const v1::TrainingJobSpec& spec, const std::string& data_root,
                             int64_t text_limit, std::function<absl::Status()> check_stop) {
  const v1::DataSpec& files = spec.data();
  std::unique_ptr<Tokenizer> tokenizer;
  if (!files.tokenizer().empty()) {
    absl::StatusOr<std::unique_ptr<Tokenizer>> loaded =
        LoadTokenizerInsideRoot(data_root, files.tokenizer(), "spec.data.tokenizer");
    if (!loaded.ok()) return loaded.status();
    tokenizer = *std::move(loaded);
  }
  TokenSourceOptions options;
  options.data_root = data_root;
  options.path = files.path();
  options.format = files.format();
  if (!files.text_field().empty()) options.text_field = files.text_field();
  options.tokenizer = tokenizer.get();
  options.vocab_size = spec.model().vocab_size();
  options.min_tokens = int64_t{files.sequence_length()} + 1;
  options.field = "spec.data.path";
  options.check_stop = std::move(check_stop);
  JobData data;
  absl::StatusOr<std::unique_ptr<TokenSource>> train = Open(options, text_limit);
  if (!train.ok()) return train.status();
  data.train = *std::move(train);
  if (!spec.has_evaluation()) return data;
  options.path = files.validation_path();
  options.field = "spec.data.validation_path";
  absl::StatusOr<std::unique_ptr<TokenSource>> validation = Open(options, text_limit);
  if (!validation.ok()) return validation.status();
  data.validation = *std::move(validation);
  return data;
}
constexpr int64_t kNoLimit = -1;

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokenSource(const TokenSourceOptions& options) {
  return Open(options, kNoLimit);
}
// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

absl::StatusOr<JobData> OpenJobData(const v1::TrainingJobSpec& spec, const std::string& data_root,
                                    std::function<absl::Status()> check_stop) {
  return Open(spec, data_root, kNoLimit, std::move(check_stop));
}

absl::Status CheckJobData(const v1::TrainingJobSpec& spec, const std::string& data_root,
                          int64_t text_limit_bytes) {
  return Open(spec, data_root, text_limit_bytes, nullptr).status();
}

}  // namespace tessera
