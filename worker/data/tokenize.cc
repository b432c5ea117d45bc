#include "worker/data/tokenize.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "storage/mapped_file.h"
#include "storage/utf8.h"
#include "worker/data/token_file_writer.h"
#include "worker/data/tokenizer_files.h"

namespace tessera {
namespace {

// Where the training part ends.
size_t SplitAt(absl::string_view text, double share, bool lines) {
  const auto part = [share](int64_t count) {
    return static_cast<int64_t>(static_cast<double>(count) * share);
  };
  if (!lines) return Utf8CharBegin(text, part(CountUtf8Chars(text)));
  const bool open_end = !text.empty() && text.back() != '\n';
  int64_t left = part(std::count(text.begin(), text.end(), '\n') + (open_end ? 1 : 0));
  size_t at = 0;
  for (; left > 0; --left) at = text.find('\n', at) + 1;
  return at;
}

// "a/b.bin", "train" -> "a/b_train.bin".
std::string WithSuffix(const std::string& path, const char* suffix) {
  const std::filesystem::path file(path);
  return (file.parent_path() /
          absl::StrCat(file.stem().string(), "_", suffix, file.extension().string()))
      .string();
}

struct Part {
  absl::string_view text;
  std::string path;
};

absl::StatusOr<std::vector<Part>> Divide(absl::string_view text, const TokenizeOptions& options) {
  if (!options.split.has_value()) return std::vector<Part>{{text, options.output}};
  const double share = *options.split;
  if (!(share > 0 && share < 1)) {
    return InvalidField("--split", absl::StrCat(share), "must be above 0 and below 1");
  }
  const size_t at = SplitAt(text, share, options.input_format.json_lines);
  if (at == 0 || at >= text.size()) {
    return InvalidField("--split", absl::StrCat(share),
                        absl::StrCat("leaves nothing on one side of ", options.input));
  }
  return std::vector<Part>{{text.substr(0, at), WithSuffix(options.output, "train")},
                           {text.substr(at), WithSuffix(options.output, "val")}};
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const TokenizeOptions& options) {
  absl::StatusOr<TokenizerFiles> files = FindTokenizerFiles(options.tokenizer);
  if (!files.ok()) {
    return FieldError(files.status().code(), "--tokenizer", "", files.status().message());
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(*files);
  if (!tokenizer.ok()) {
    return FieldError(tokenizer.status().code(), "--tokenizer", "", tokenizer.status().message());
  }
  if (options.append_end_of_text && !(*tokenizer)->end_of_text().has_value()) {
    return InvalidField("--append-eot", "", "the tokenizer has no end-of-text token");
  }
  return tokenizer;
}

}  // namespace

absl::StatusOr<TokenizeResult> TokenizeFile(const TokenizeOptions& options) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Load(options);
  if (!tokenizer.ok()) return tokenizer.status();
  absl::StatusOr<MappedFile> file = MappedFile::Open(options.input);
  if (!file.ok()) {
    return FieldError(file.status().code(), "--input", options.input, file.status().message());
  }
  const absl::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                               file->bytes().size());
  absl::StatusOr<std::vector<Part>> parts = Divide(text, options);
  if (!parts.ok()) return parts.status();

  DocumentEncoding encoding;
  encoding.tokenizer = tokenizer->get();
  encoding.special = options.special;
  encoding.append_end_of_text = options.append_end_of_text;
  TokenizeResult result;
  result.input_bytes = static_cast<int64_t>(text.size());
  std::vector<std::unique_ptr<TokenFileWriter>> writers;
  int64_t tokens_before = 0;
  for (const Part& part : *parts) {
    absl::StatusOr<std::unique_ptr<TokenFileWriter>> writer =
        TokenFileWriter::Create(part.path, options.format, (*tokenizer)->vocab_size());
    if (!writer.ok()) return writer.status();
    absl::Status written;
    const absl::Status status = EncodeDocuments(
        part.text, options.input_format, encoding, [&](absl::Span<const int32_t> ids) {
          written = (*writer)->Add(ids);
          if (options.progress) options.progress(tokens_before + (*writer)->num_tokens());
          return written;
        });
    if (!written.ok()) return written;
    if (!status.ok()) {
      const int64_t begin = part.text.data() - text.data();
      return FieldError(status.code(), "--input", options.input,
                        begin == 0 ? std::string(status.message())
                                   : absl::StrCat(status.message(), ", counted from byte ", begin));
    }
    tokens_before += (*writer)->num_tokens();
    writers.push_back(*std::move(writer));
  }
  for (const std::unique_ptr<TokenFileWriter>& writer : writers) {
    const absl::Status status = writer->Finish();
    if (!status.ok()) return status;
    result.files.push_back({writer->path(), writer->num_tokens()});
  }
  return result;
}

}  // namespace tessera
