// Between text and tokens: a tokenizer, or bytes that are ids themselves.
#ifndef TESSERA_WORKER_GENERATION_TEXT_CODEC_H_
#define TESSERA_WORKER_GENERATION_TEXT_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/tokenizer.h"

namespace tessera {

// Immutable, thread-safe.
class TextCodec {
 public:
  // Every byte is a token.
  static TextCodec Bytes() { return TextCodec(nullptr); }
  // As LoadTokenizerInsideRoot.
  static absl::StatusOr<TextCodec> Open(const std::string& data_root, const std::string& path,
                                        const std::string& field);
  // The tokenizer in a folder; nothing if there is none.
  static absl::StatusOr<std::optional<TextCodec>> OpenFolder(const std::string& folder);

  // Special tokens are recognised, where the tokenizer's files allow it.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const;
  // The bytes of the tokens, one after another. Of bytes, and of a tokenizer that is smaller than
  // the model's vocabulary, ids beyond have none.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const;

 private:
  explicit TextCodec(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  std::shared_ptr<const Tokenizer> tokenizer_;  // null: bytes
};

}  // namespace tessera

#endif  // TESSERA_WORKER_GENERATION_TEXT_CODEC_H_
