// Encodes text that comes in blocks.
#ifndef TESSERA_WORKER_DATA_TEXT_ENCODER_H_
#define TESSERA_WORKER_DATA_TEXT_ENCODER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/byte_pair_encoding.h"
#include "worker/data/pretokenizer.h"
#include "worker/data/tokenizer.h"

namespace tessera {

// For one thread; the tokenizer outlives it. Remembers how it encoded short pre-tokens, in at most
// some 20 MB.
//
// Ids are those of Hugging Face's tokenizers without add_special_tokens. They do not depend on how
// a text is divided into blocks: what a later byte could still change is held back. That is at most
// kMaxPretokenBytes and one block; a text without a cut for longer is refused.
class TextEncoder {
 public:
  static constexpr size_t kMaxPretokenBytes = size_t{1} << 24;

  TextEncoder(const Tokenizer& tokenizer, SpecialTokens special);

  // Appends the ids that are certain once `block` has followed what was fed before. After an error
  // (INVALID_ARGUMENT: kMaxPretokenBytes) the encoder is as new.
  absl::Status Feed(absl::string_view block, std::vector<int32_t>* ids);
  // Appends the rest: the text ends here, and the next block begins another.
  absl::Status Finish(std::vector<int32_t>* ids);

  // A whole text. REQUIRES: nothing was fed since the last Finish.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text);

 private:
  absl::Status Advance(bool is_final, std::vector<int32_t>* ids);
  // Takes text from raw_ between added tokens; returns how much.
  absl::StatusOr<size_t> EncodeBetween(absl::string_view raw, bool is_final,
                                       std::vector<int32_t>* ids);
  absl::Status EncodePretokens(bool is_final, std::vector<int32_t>* ids);
  void EncodePretoken(absl::string_view pretoken, std::vector<int32_t>* ids);

  const Tokenizer& tokenizer_;
  const AddedTokens& added_tokens_;
  PretokenReader reader_;
  BytePairEncoding::Scratch scratch_;
  std::string raw_;   // not yet searched for added tokens, nor normalized
  std::string text_;  // not yet cut into pre-tokens

  absl::flat_hash_map<std::string, std::pair<int32_t, int32_t>> cache_;  // -> begin, count
  std::vector<int32_t> cached_ids_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TEXT_ENCODER_H_
