// Finds and reads a tokenizer's files.
#ifndef TESSERA_WORKER_DATA_TOKENIZER_FILES_H_
#define TESSERA_WORKER_DATA_TOKENIZER_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/tokenizer.h"

namespace tessera {

inline constexpr int64_t kMaxTokenizerFileBytes = int64_t{64} << 20;

// Either tokenizer_json, perhaps with tokenizer_config, or vocabulary and merges; the others are
// empty.
struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config;
  std::string vocabulary;
  std::string merges;

  // Those that are not empty.
  std::vector<std::string> paths() const;
};

// `path` is a tokenizer.json (of any name), or a folder with, in this order of preference,
// tokenizer.json; vocab.json and merges.txt; encoder.json and vocab.bpe. A tokenizer_config.json
// beside tokenizer.json belongs to it. NOT_FOUND if there is nothing of this kind.
absl::StatusOr<TokenizerFiles> FindTokenizerFiles(const std::string& path);

// Errors are those of the parsers, of MappedFile and of Tokenizer::Create, after the file's name;
// INVALID_ARGUMENT for a file above kMaxTokenizerFileBytes.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const TokenizerFiles& files);

// The tokenizer at `path` under data_root. Errors of both functions above and, INVALID_ARGUMENT, of
// a path or file that leaves the root (data_root.h), all under `field`.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerInsideRoot(const std::string& data_root,
                                                                   const std::string& path,
                                                                   const std::string& field);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKENIZER_FILES_H_
