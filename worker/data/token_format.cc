#include "worker/data/token_format.h"

#include <cstring>

#include "absl/base/internal/endian.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int32_t kLlmcGpt2Magic = 20240520;
constexpr int32_t kLlmcLlama3Magic = 20240801;

uint32_t ReadItem(const uint8_t* at, int size) {
  switch (size) {
    case 1:
      return *at;
    case 2:
      return absl::little_endian::Load16(at);
    default:
      return absl::little_endian::Load32(at);
  }
}

absl::StatusOr<TokenLayout> ParseLlmc(absl::Span<const uint8_t> file) {
  if (static_cast<int64_t>(file.size()) < kLlmcHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", file.size(), " bytes, fewer than the ",
                                                   kLlmcHeaderBytes, " of an llm.c header"));
  }
  auto word = [&](int i) {
    return static_cast<int32_t>(absl::little_endian::Load32(file.data() + 4 * i));
  };
  TokenLayout layout;
  layout.data_offset_bytes = kLlmcHeaderBytes;
  int version = 0;
  if (word(0) == kLlmcGpt2Magic) {
    version = 1;
    layout.item_size_bytes = 2;
  } else if (word(0) == kLlmcLlama3Magic) {
    version = 7;
    layout.item_size_bytes = 4;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("magic at byte 0 is ", word(0), ", not ",
                                                   kLlmcGpt2Magic, " or ", kLlmcLlama3Magic));
  }
  if (word(1) != version) {
    return absl::InvalidArgumentError(
        absl::StrCat("version at byte 4 is ", word(1), ", not ", version));
  }
  layout.num_tokens = word(2);
  const int64_t expected = kLlmcHeaderBytes + layout.num_tokens * layout.item_size_bytes;
  if (layout.num_tokens < 0 || expected != static_cast<int64_t>(file.size())) {
    return absl::InvalidArgumentError(absl::StrCat("token count at byte 8 is ", layout.num_tokens,
                                                   ", which asks for ", expected,
                                                   " bytes, but the file has ", file.size()));
  }
  return layout;
}

template <typename Item>
int64_t FirstAtLeast(const uint8_t* data, int64_t count, uint32_t limit) {
  // Blocks are folded with max first, which compilers vectorise; only a bad block is searched.
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    Item largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      Item item;
      std::memcpy(&item, data + i * sizeof(Item), sizeof(Item));
      largest = item > largest ? item : largest;
    }
    if (largest < limit) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (ReadItem(data + i * sizeof(Item), sizeof(Item)) >= limit) return i;
    }
  }
  return -1;
}

}  // namespace

absl::StatusOr<TokenLayout> ParseTokenLayout(v1::DataFormat format,
                                             absl::Span<const uint8_t> file) {
  TokenLayout layout;
  switch (format) {
    case v1::DATA_FORMAT_TEXT:
      layout.num_tokens = static_cast<int64_t>(file.size());
      return layout;
    case v1::DATA_FORMAT_NANOGPT:
      if (file.size() % 2 != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("has ", file.size(), " bytes, which is no whole number of uint16 tokens"));
      }
      layout.item_size_bytes = 2;
      layout.num_tokens = static_cast<int64_t>(file.size()) / 2;
      return layout;
    case v1::DATA_FORMAT_LLMC:
      return ParseLlmc(file);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("format ", v1::DataFormat_Name(format), " is not a token file format"));
  }
}

void ReadTokens(const TokenLayout& layout, absl::Span<const uint8_t> file, int64_t begin,
                absl::Span<int32_t> tokens) {
  const uint8_t* at = file.data() + layout.data_offset_bytes + begin * layout.item_size_bytes;
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(ReadItem(at, layout.item_size_bytes));
    at += layout.item_size_bytes;
  }
}

IdViolation FindIdAtLeast(const TokenLayout& layout, absl::Span<const uint8_t> file,
                          int64_t vocab_size) {
  const uint8_t* data = file.data() + layout.data_offset_bytes;
  const auto limit = static_cast<uint32_t>(vocab_size);
  IdViolation violation;
  switch (layout.item_size_bytes) {
    case 1:
      if (limit <= 0xff) violation.index = FirstAtLeast<uint8_t>(data, layout.num_tokens, limit);
      break;
    case 2:
      if (limit <= 0xffff) violation.index = FirstAtLeast<uint16_t>(data, layout.num_tokens, limit);
      break;
    default:
      violation.index = FirstAtLeast<uint32_t>(data, layout.num_tokens, limit);
  }
  if (violation.index >= 0) {
    violation.byte_offset = layout.data_offset_bytes + violation.index * layout.item_size_bytes;
    violation.id = ReadItem(file.data() + violation.byte_offset, layout.item_size_bytes);
  }
  return violation;
}

}  // namespace tessera
