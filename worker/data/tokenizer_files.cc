#include "worker/data/tokenizer_files.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "storage/mapped_file.h"
#include "worker/data/data_root.h"
#include "worker/data/tokenizer_json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

absl::Status WithFile(const absl::Status& status, const std::string& path) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// Of an empty path: no text.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  if (path.empty()) return std::string();
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return WithFile(file.status(), path);
  const absl::Span<const uint8_t> bytes = file->bytes();
  if (static_cast<int64_t>(bytes.size()) > kMaxTokenizerFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", bytes.size(), " bytes, more than ", kMaxTokenizerFileBytes));
  }
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::string> TokenizerFiles::paths() const {
  std::vector<std::string> all;
  for (const std::string* path : {&tokenizer_json, &tokenizer_config, &vocabulary, &merges}) {
    if (!path->empty()) all.push_back(*path);
  }
  return all;
}

absl::StatusOr<TokenizerFiles> FindTokenizerFiles(const std::string& path) {
  std::error_code error;
  const auto exists = [&error](const fs::path& file) { return fs::exists(file, error); };
  TokenizerFiles files;
  const fs::path given(path);
  const bool is_folder = fs::is_directory(given, error);
  if (!is_folder && !exists(given))
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  const fs::path folder = is_folder ? given : given.parent_path();
  const fs::path json = is_folder ? folder / "tokenizer.json" : given;
  if (exists(json)) {
    const fs::path config = folder / "tokenizer_config.json";
    files.tokenizer_json = json.string();
    if (exists(config)) files.tokenizer_config = config.string();
    return files;
  }
  constexpr const char* kPairs[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};
  for (const auto& [vocabulary, merges] : kPairs) {
    if (exists(folder / vocabulary) && exists(folder / merges)) {
      files.vocabulary = (folder / vocabulary).string();
      files.merges = (folder / merges).string();
      return files;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      path,
      ": has neither tokenizer.json, nor vocab.json and merges.txt, nor encoder.json and "
      "vocab.bpe"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const TokenizerFiles& files) {
  const bool is_json = !files.tokenizer_json.empty();
  const std::string& first_path = is_json ? files.tokenizer_json : files.vocabulary;
  const std::string& second_path = is_json ? files.tokenizer_config : files.merges;
  absl::StatusOr<std::string> first = ReadSmallFile(first_path);
  if (!first.ok()) return first.status();
  absl::StatusOr<std::string> second = ReadSmallFile(second_path);
  if (!second.ok()) return second.status();
  absl::StatusOr<TokenizerDefinition> definition =
      is_json ? ParseTokenizerJson(*first, *second) : ParseGpt2Tokenizer(*first, *second);
  if (!definition.ok()) return WithFile(definition.status(), first_path);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(*std::move(definition));
  if (!tokenizer.ok()) return WithFile(tokenizer.status(), first_path);
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerInsideRoot(const std::string& data_root,
                                                                   const std::string& path,
                                                                   const std::string& field) {
  absl::StatusOr<std::string> resolved = ResolveInsideRoot(data_root, path, field);
  if (!resolved.ok()) return resolved.status();
  absl::StatusOr<TokenizerFiles> files = FindTokenizerFiles(*resolved);
  if (!files.ok()) {
    return FieldError(files.status().code(), field, path, files.status().message());
  }
  // The files may be links themselves.
  for (const std::string& file : files->paths()) {
    absl::Status inside = CheckInsideRoot(data_root, file, field);
    if (!inside.ok()) return inside;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(*files);
  if (tokenizer.ok()) return tokenizer;
  return FieldError(tokenizer.status().code(), field, path, tokenizer.status().message());
}

}  // namespace tessera
