#include "worker/data/token_format.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// Calls f with a value of the element type.
template <typename Function>
auto WithType(TokenType type, Function f) {
  switch (type) {
    case TokenType::kU8:
      return f(uint8_t{});
    case TokenType::kI8:
      return f(int8_t{});
    case TokenType::kI16:
      return f(int16_t{});
    case TokenType::kU16:
      return f(uint16_t{});
    case TokenType::kI32:
      return f(int32_t{});
    case TokenType::kU32:
      return f(uint32_t{});
    case TokenType::kI64:
      break;
  }
  return f(int64_t{});
}

// Files and this machine are little-endian.
template <typename Item>
Item Load(const uint8_t* at) {
  Item item;
  std::memcpy(&item, at, sizeof(Item));
  return item;
}

// A token of the file as an id.
template <typename Item>
int64_t LoadId(const uint8_t* at) {
  return Load<Item>(at);  // NOLINT(bugprone-signed-char-misuse): int8 is a number here
}

absl::StatusOr<TokenLayout> ParseLlmc(absl::Span<const uint8_t> file) {
  if (static_cast<int64_t>(file.size()) < kLlmcHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", file.size(), " bytes, fewer than the ",
                                                   kLlmcHeaderBytes, " of an llm.c header"));
  }
  auto word = [&](int i) { return Load<int32_t>(file.data() + 4 * i); };
  TokenLayout layout;
  layout.data_offset_bytes = kLlmcHeaderBytes;
  int version = 0;
  if (word(0) == kLlmcGpt2Magic) {
    version = kLlmcGpt2Version;
    layout.type = TokenType::kU16;
  } else if (word(0) == kLlmcLlama3Magic) {
    version = kLlmcLlama3Version;
    layout.type = TokenType::kU32;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("magic at byte 0 is ", word(0), ", not ",
                                                   kLlmcGpt2Magic, " or ", kLlmcLlama3Magic));
  }
  if (word(1) != version) {
    return absl::InvalidArgumentError(
        absl::StrCat("version at byte 4 is ", word(1), ", not ", version));
  }
  layout.num_tokens = word(2);
  const int64_t expected = kLlmcHeaderBytes + layout.num_tokens * SizeBytes(layout.type);
  if (layout.num_tokens < 0 || expected != static_cast<int64_t>(file.size())) {
    return absl::InvalidArgumentError(absl::StrCat("token count at byte 8 is ", layout.num_tokens,
                                                   ", which asks for ", expected,
                                                   " bytes, but the file has ", file.size()));
  }
  return layout;
}

template <typename Item>
int64_t FirstOutside(const uint8_t* data, int64_t count, int64_t limit) {
  // Blocks are folded with min and max first, which compilers vectorise; only a bad one is
  // searched.
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Item smallest = 0;
    Item largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Item item = Load<Item>(data + i * sizeof(Item));
      smallest = std::min(smallest, item);
      largest = std::max(largest, item);
    }
    if (smallest >= 0 && static_cast<int64_t>(largest) < limit) continue;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = LoadId<Item>(data + i * sizeof(Item));
      if (id < 0 || id >= limit) return i;
    }
  }
  return -1;
}

}  // namespace

int SizeBytes(TokenType type) {
  return WithType(type, [](auto item) { return static_cast<int>(sizeof(item)); });
}

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
      layout.type = TokenType::kU16;
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
  WithType(layout.type, [&]<typename Item>(Item) {
    const uint8_t* at = file.data() + layout.data_offset_bytes + begin * sizeof(Item);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(LoadId<Item>(at));
      at += sizeof(Item);
    }
  });
}

IdViolation FindIdOutside(const TokenLayout& layout, absl::Span<const uint8_t> file,
                          int64_t vocab_size) {
  return WithType(layout.type, [&]<typename Item>(Item) {
    const uint8_t* data = file.data() + layout.data_offset_bytes;
    IdViolation violation;
    violation.index = FirstOutside<Item>(data, layout.num_tokens, vocab_size);
    if (violation.index < 0) return violation;
    const int64_t offset = violation.index * static_cast<int64_t>(sizeof(Item));
    violation.byte_offset = layout.data_offset_bytes + offset;
    violation.id = LoadId<Item>(data + offset);
    return violation;
  });
}

}  // namespace tessera
