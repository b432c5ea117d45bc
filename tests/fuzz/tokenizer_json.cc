// tokenizer.json: the input is that file, a zero byte, tokenizer_config.json. What is
// accepted must encode any bytes and give them back.
#include "worker/data/tokenizer_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/check.h"
#include "worker/data/text_encoder.h"
#include "worker/data/tokenizer.h"

namespace {

void CheckRoundTrip(const tessera::Tokenizer& tokenizer, const std::string& text) {
  for (const auto special :
       {tessera::SpecialTokens::kRecognised, tessera::SpecialTokens::kAsText}) {
    absl::StatusOr<std::vector<int32_t>> ids =
        tessera::TextEncoder(tokenizer, special).Encode(text);
    FUZZ_CHECK(ids.ok());
    absl::StatusOr<std::string> back = tokenizer.Decode(*ids);
    FUZZ_CHECK(back.ok() && (tokenizer.normalizes_nfc() || *back == text));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), size);
  absl::StatusOr<tessera::TokenizerDefinition> definition =
      tessera::ParseTokenizerJson(input.substr(0, zero), input.substr(std::min(zero + 1, size)));
  if (!definition.ok()) return 0;
  absl::StatusOr<std::unique_ptr<tessera::Tokenizer>> tokenizer =
      tessera::Tokenizer::Create(*std::move(definition));
  if (tokenizer.ok()) CheckRoundTrip(**tokenizer, "hello  123\n" + input.substr(0, 4096));
  return 0;
}
