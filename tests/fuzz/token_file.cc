// Token files: the first byte chooses the format; of Megatron's pair the .idx comes behind
// its size in two bytes, then the .bin. Every token of an accepted file is read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/fuzz/check.h"
#include "worker/data/token_format.h"

namespace {

constexpr int64_t kVocabSize = 50257;

void ReadAll(const tessera::TokenLayout& layout, absl::Span<const uint8_t> file) {
  const tessera::IdViolation bad = tessera::FindIdOutside(layout, file, kVocabSize);
  std::vector<int32_t> tokens(static_cast<size_t>(layout.num_tokens));
  tessera::ReadTokens(layout, file, 0, absl::MakeSpan(tokens));
  const auto outside = std::find_if(tokens.begin(), tokens.end(),
                                    [](int32_t id) { return id < 0 || id >= kVocabSize; });
  // 64-bit ids may come to look sound when cut to 32.
  FUZZ_CHECK(bad.index >= 0 || outside == tokens.end());
  FUZZ_CHECK(bad.index <= outside - tokens.begin());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const absl::Span<const uint8_t> all(data, size);
  constexpr tessera::v1::DataFormat kFormats[] = {tessera::v1::DATA_FORMAT_TEXT,
                                                  tessera::v1::DATA_FORMAT_NANOGPT,
                                                  tessera::v1::DATA_FORMAT_LLMC};
  if (data[0] % 4 < 3) {
    const absl::Span<const uint8_t> file = all.subspan(1);
    absl::StatusOr<tessera::TokenLayout> layout =
        tessera::ParseTokenLayout(kFormats[data[0] % 4], file);
    if (layout.ok()) ReadAll(*layout, file);
    return 0;
  }
  const size_t index_size = std::min<size_t>(data[1] | data[2] << 8, size - 3);
  const absl::Span<const uint8_t> file = all.subspan(3 + index_size);
  absl::StatusOr<tessera::TokenLayout> layout =
      tessera::ParseMegatronIndex(all.subspan(3, index_size), static_cast<int64_t>(file.size()));
  if (layout.ok()) ReadAll(*layout, file);
  return 0;
}
