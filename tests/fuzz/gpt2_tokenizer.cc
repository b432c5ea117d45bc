// GPT-2's two files: the input is vocab.json, a zero byte, merges.txt, a zero byte, a text.
// A tokenizer that is accepted must give the text back.
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
#include "worker/data/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t first = std::min(input.find('\0'), size);
  const size_t second = std::min(input.find('\0', std::min(first + 1, size)), size);
  const std::string merges =
      first == second ? std::string() : input.substr(first + 1, second - first - 1);
  absl::StatusOr<tessera::TokenizerDefinition> definition =
      tessera::ParseGpt2Tokenizer(input.substr(0, first), merges);
  if (!definition.ok()) return 0;
  absl::StatusOr<std::unique_ptr<tessera::Tokenizer>> tokenizer =
      tessera::Tokenizer::Create(*std::move(definition));
  if (!tokenizer.ok()) return 0;
  const std::string text = input.substr(std::min(second + 1, size));
  absl::StatusOr<std::vector<int32_t>> ids =
      tessera::TextEncoder(**tokenizer, tessera::SpecialTokens::kAsText).Encode(text);
  FUZZ_CHECK(ids.ok());
  absl::StatusOr<std::string> back = (*tokenizer)->Decode(*ids);
  FUZZ_CHECK(back.ok() && *back == text);
  return 0;
}
