#include "storage/utf8.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

// The second byte's range, which alone depends on the first (table 3-7).
struct Lead {
  int size_bytes;
  uint8_t second_low, second_high;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte < 0xf0) {
    return {3, static_cast<uint8_t>(byte == 0xe0 ? 0xa0 : 0x80),
            static_cast<uint8_t>(byte == 0xed ? 0x9f : 0xbf)};
  }
  if (byte < 0xf5) {
    return {4, static_cast<uint8_t>(byte == 0xf0 ? 0x90 : 0x80),
            static_cast<uint8_t>(byte == 0xf4 ? 0x8f : 0xbf)};
  }
  return {0, 0, 0};
}

}  // namespace

size_t AsciiPrefix(absl::string_view text) {
  size_t at = 0;
  for (uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

Utf8Char FirstUtf8Char(absl::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = LeadOf(first);
  if (lead.size_bytes <= 1) return {.size_bytes = lead.size_bytes, .code = first};
  uint32_t code = first & (0xffu >> (lead.size_bytes + 1));
  for (int i = 1; i < lead.size_bytes; ++i) {
    if (i == static_cast<int>(text.size())) return {.truncated = true};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xbf;
    if (byte < low || byte > high) return {};
    code = code << 6 | (byte & 0x3fu);
  }
  return {.size_bytes = lead.size_bytes, .code = code};
}

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t at = 0;
  while (true) {
    at += AsciiPrefix(text.substr(at));
    if (at == text.size()) return at;
    const Utf8Char next = FirstUtf8Char(text.substr(at));
    if (next.size_bytes == 0) return at;
    at += next.size_bytes;
  }
}

bool IsUtf8(absl::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

int64_t CountUtf8Chars(absl::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const size_t ascii = AsciiPrefix(text.substr(at));
    if (ascii > 0) {
      count += static_cast<int64_t>(ascii) - 1;
      at += ascii;
    } else {
      at += std::max(1, FirstUtf8Char(text.substr(at)).size_bytes);
    }
  }
  return count;
}

size_t Utf8CharBegin(absl::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size() && index > 0; --index) {
    at += std::max(1, FirstUtf8Char(text.substr(at)).size_bytes);
  }
  return at;
}

}  // namespace tessera
