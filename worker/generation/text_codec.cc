#include "worker/generation/text_codec.h"

#include <utility>

#include "kernels/status_macros.h"
#include "worker/data/text_encoder.h"
#include "worker/data/tokenizer_files.h"

namespace tessera {

absl::StatusOr<TextCodec> TextCodec::Open(const std::string& data_root, const std::string& path,
                                          const std::string& field) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                           LoadTokenizerInsideRoot(data_root, path, field));
  return TextCodec(std::move(tokenizer));
}

absl::StatusOr<std::optional<TextCodec>> TextCodec::OpenFolder(const std::string& folder) {
  absl::StatusOr<TokenizerFiles> files = FindTokenizerFiles(folder);
  if (absl::IsNotFound(files.status())) return std::nullopt;
  if (!files.ok()) return files.status();
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(*files));
  return TextCodec(std::move(tokenizer));
}

absl::StatusOr<std::vector<int32_t>> TextCodec::Encode(absl::string_view text) const {
  if (tokenizer_ != nullptr) {
    return TextEncoder(*tokenizer_, SpecialTokens::kRecognised).Encode(text);
  }
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

absl::StatusOr<std::string> TextCodec::Decode(absl::Span<const int32_t> ids) const {
  const int32_t known = tokenizer_ != nullptr ? tokenizer_->vocab_size() : 256;
  std::string text;
  for (const int32_t id : ids) {
    if (id >= known) continue;  // padding of a vocabulary
    if (tokenizer_ == nullptr) {
      text.push_back(static_cast<char>(id));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const std::string piece, tokenizer_->Decode({id}));
    text += piece;
  }
  return text;
}

}  // namespace tessera
