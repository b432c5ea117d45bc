#include "worker/data/tokenizer.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "worker/data/byte_level.h"

namespace tessera {
namespace {

using AddedToken = TokenizerDefinition::AddedToken;

absl::Status TokenError(absl::string_view token, absl::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("token \"", absl::CHexEscape(token), "\": ", rule));
}

// The bytes of every token by id. Ids are dense, so that no id, however large, makes memory.
absl::StatusOr<std::vector<std::optional<std::string>>> TokensById(
    const TokenizerDefinition& definition) {
  const auto limit =
      static_cast<int64_t>(definition.vocabulary.size() + definition.added_tokens.size());
  std::vector<std::optional<std::string>> tokens(limit);
  int64_t size = 0;
  auto range_error = [&](absl::string_view token, int32_t id) {
    return TokenError(token, absl::StrCat("id ", id, " is not in 0 .. ", limit - 1,
                                          ", the range of ", limit, " tokens without holes"));
  };
  for (const auto& [bytes, id] : definition.vocabulary) {
    if (id < 0 || id >= limit) return range_error(bytes, id);
    if (tokens[id].has_value()) {
      return TokenError(bytes, absl::StrCat("id ", id, " is also that of \"",
                                            absl::CHexEscape(*tokens[id]), "\""));
    }
    tokens[id] = bytes;
    size = std::max(size, int64_t{id} + 1);
  }
  std::vector<bool> is_added(limit);
  absl::flat_hash_set<absl::string_view> contents;
  for (const AddedToken& added : definition.added_tokens) {
    if (added.content.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("added token ", added.id, ": is empty"));
    }
    if (added.id < 0 || added.id >= limit) return range_error(added.content, added.id);
    const bool is_other = tokens[added.id].has_value() && *tokens[added.id] != added.content;
    if (is_added[added.id] || is_other) {
      return TokenError(added.content, absl::StrCat("id ", added.id, " is also that of \"",
                                                    absl::CHexEscape(*tokens[added.id]), "\""));
    }
    if (!contents.insert(added.content).second) {
      return TokenError(added.content, "is added twice");
    }
    is_added[added.id] = true;
    tokens[added.id] = added.content;
    size = std::max(size, int64_t{added.id} + 1);
  }
  tokens.resize(size);
  for (int64_t id = 0; id < size; ++id) {
    if (!tokens[id].has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocabulary: id ", id, " has no token, but ", size - 1, " has one"));
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerDefinition definition) {
  auto tokens = TokensById(definition);
  if (!tokens.ok()) return tokens.status();
  std::optional<int32_t> end_of_text;
  if (!definition.end_of_text.empty()) {
    for (size_t id = 0; id < tokens->size(); ++id) {
      if (*(*tokens)[id] == definition.end_of_text) end_of_text = static_cast<int32_t>(id);
    }
    if (!end_of_text.has_value()) {
      return TokenError(definition.end_of_text, "the end of text is not in the vocabulary");
    }
  }
  absl::StatusOr<Pretokenizer> pretokenizer =
      Pretokenizer::Create(definition.pattern, definition.digits);
  if (!pretokenizer.ok()) return pretokenizer.status();
  absl::StatusOr<BytePairEncoding> encoding = BytePairEncoding::Create(
      std::move(definition.vocabulary), definition.merges, definition.whole_tokens_first);
  if (!encoding.ok()) return encoding.status();

  std::unique_ptr<Tokenizer> tokenizer(
      new Tokenizer(*std::move(encoding), *std::move(pretokenizer)));
  tokenizer->end_of_text_ = end_of_text;
  tokenizer->normalize_nfc_ = definition.normalize_nfc;
  for (const AddedToken& added : definition.added_tokens) {
    tokenizer->all_added_.Add(added.content, added.id);
    if (!added.special) tokenizer->ordinary_added_.Add(added.content, added.id);
  }
  tokenizer->token_ends_.reserve(tokens->size());
  for (const std::optional<std::string>& token : *tokens) {
    tokenizer->token_bytes_.append(*token);
    tokenizer->token_ends_.push_back(static_cast<int64_t>(tokenizer->token_bytes_.size()));
  }
  return tokenizer;
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    if (id < 0 || id >= vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat("ids[", i, "]: ", id, ": must be 0 .. ",
                                                     vocab_size() - 1, ", the vocabulary"));
    }
    const int64_t begin = id == 0 ? 0 : token_ends_[id - 1];
    text.append(token_bytes_, begin, token_ends_[id] - begin);
  }
  return text;
}

}  // namespace tessera
