// A byte-level BPE tokenizer: text to ids of a vocabulary and back.
#ifndef TESSERA_WORKER_DATA_TOKENIZER_H_
#define TESSERA_WORKER_DATA_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/added_tokens.h"
#include "worker/data/byte_pair_encoding.h"
#include "worker/data/pretokenizer.h"

namespace tessera {

// What a tokenizer's files say, whatever their format.
struct TokenizerDefinition {
  struct AddedToken {
    std::string content;
    int32_t id = 0;
    bool special = false;
  };
  BytePairEncoding::TokenIds vocabulary;
  BytePairEncoding::Merges merges;
  std::vector<AddedToken>
      added_tokens;  // an id may be in the vocabulary as well, with this content
  SplitPattern pattern = SplitPattern::kGpt2;
  DigitSplit digits = DigitSplit::kNone;
  bool normalize_nfc = false;
  bool whole_tokens_first = false;
  std::string end_of_text;  // a token; empty: none
};

// Whether special tokens are recognised in text, or are text like any other. Added tokens that are
// not special are always recognised.
enum class SpecialTokens { kAsText, kRecognised };

// Immutable, thread-safe. TextEncoder encodes.
class Tokenizer {
 public:
  // INVALID_ARGUMENT, naming the token, id or merge: what BytePairEncoding refuses, an id that two
  // tokens have, an id without a token below the largest, an empty or repeated added token, an end
  // of text that is no token.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerDefinition definition);

  // Ids are 0 .. vocab_size - 1, and every one of them has a token.
  int32_t vocab_size() const { return static_cast<int32_t>(token_ends_.size()); }
  // The token that stands between documents.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }

  // The bytes of the ids' tokens, one after another. With or without special tokens recognised, the
  // decoding of an encoding is the encoded text, byte for byte, whatever its bytes are; or its
  // normal form, where normalizes_nfc. INVALID_ARGUMENT: an id that is not in the vocabulary.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const;
  bool normalizes_nfc() const { return normalize_nfc_; }

  // Parts, for TextEncoder.
  const BytePairEncoding& encoding() const { return encoding_; }
  const Pretokenizer& pretokenizer() const { return pretokenizer_; }
  const AddedTokens& added_tokens(SpecialTokens special) const {
    return special == SpecialTokens::kRecognised ? all_added_ : ordinary_added_;
  }

 private:
  Tokenizer(BytePairEncoding encoding, Pretokenizer pretokenizer)
      : encoding_(std::move(encoding)), pretokenizer_(std::move(pretokenizer)) {}

  BytePairEncoding encoding_;
  Pretokenizer pretokenizer_;
  AddedTokens all_added_, ordinary_added_;
  bool normalize_nfc_ = false;
  std::optional<int32_t> end_of_text_;
  std::string token_bytes_;          // of all tokens by id
  std::vector<int64_t> token_ends_;  // in token_bytes_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKENIZER_H_
