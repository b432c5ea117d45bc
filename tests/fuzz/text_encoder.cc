// Text: the first byte chooses pattern, digits and normalization, the second the size of
// blocks, the rest is the text. Blocks must give the ids of the whole, and these the text.
#include "worker/data/text_encoder.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/check.h"
#include "worker/data/tokenizer.h"

namespace tessera {
namespace {

// All bytes, a few merges, two added tokens.
std::unique_ptr<Tokenizer> MakeTokenizer(int kind) {
  TokenizerDefinition definition;
  int32_t id = 0;
  for (; id < 256; ++id) definition.vocabulary.emplace(std::string(1, static_cast<char>(id)), id);
  definition.merges = {{"h", "e"}, {" ", "he"}, {" ", " "}, {"\xc3", "\xa9"}};
  for (const auto& [left, right] : definition.merges) {
    definition.vocabulary.emplace(left + right, id++);
  }
  definition.added_tokens = {{"<s>", id, true}, {"<s>2", id + 1, false}};
  definition.pattern = static_cast<SplitPattern>(kind % 3);
  definition.digits = static_cast<DigitSplit>(kind / 3 % 3);
  definition.normalize_nfc = kind / 9 != 0;
  return std::move(*Tokenizer::Create(std::move(definition)));
}

constexpr int kKinds = 18;

std::vector<int32_t> EncodeInBlocks(const Tokenizer& tokenizer, const std::string& text,
                                    size_t step) {
  TextEncoder encoder(tokenizer, SpecialTokens::kRecognised);
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < text.size(); begin += step) {
    FUZZ_CHECK(encoder.Feed(text.substr(begin, step), &ids).ok());
  }
  FUZZ_CHECK(encoder.Finish(&ids).ok());
  return ids;
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static std::unique_ptr<tessera::Tokenizer>* const tokenizers = [] {
    auto* made = new std::unique_ptr<tessera::Tokenizer>[tessera::kKinds];
    for (int kind = 0; kind < tessera::kKinds; ++kind) made[kind] = tessera::MakeTokenizer(kind);
    return made;
  }();
  const tessera::Tokenizer& tokenizer = *tokenizers[data[0] % tessera::kKinds];
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::vector<int32_t> whole = tessera::EncodeInBlocks(tokenizer, text, size);
  FUZZ_CHECK(tessera::EncodeInBlocks(tokenizer, text, 1 + data[1] % 16) == whole);
  absl::StatusOr<std::string> back = tokenizer.Decode(whole);
  FUZZ_CHECK(back.ok() && (tokenizer.normalizes_nfc() || *back == text));
  return 0;
}
