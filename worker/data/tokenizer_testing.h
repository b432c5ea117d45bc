// Small tokenizers for tests.
#ifndef TESSERA_WORKER_DATA_TOKENIZER_TESTING_H_
#define TESSERA_WORKER_DATA_TOKENIZER_TESTING_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/tokenizer.h"

namespace tessera {

// Bytes 0 .. 255 under their own values, then the merges' results in order, then the added tokens.
inline TokenizerDefinition TinyDefinition(
    std::vector<std::pair<std::string, std::string>> merges,
    std::vector<std::pair<std::string, bool>> added = {}) {  // content, special
  TokenizerDefinition definition;
  for (int byte = 0; byte < 256; ++byte) {
    definition.vocabulary.emplace(std::string(1, static_cast<char>(byte)), byte);
  }
  for (const auto& [left, right] : merges) {
    definition.vocabulary.emplace(left + right, static_cast<int32_t>(definition.vocabulary.size()));
  }
  auto id = static_cast<int32_t>(definition.vocabulary.size());
  for (const auto& [content, special] : added) {
    definition.added_tokens.push_back({content, id++, special});
  }
  definition.merges = std::move(merges);
  return definition;
}

inline std::unique_ptr<Tokenizer> MustCreate(TokenizerDefinition definition) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(definition));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKENIZER_TESTING_H_
