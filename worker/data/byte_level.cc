#include "worker/data/byte_level.h"

#include <array>

#include "storage/utf8.h"

namespace tessera {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;  // 68 bytes have no printable character of their own

struct Alphabet {
  std::array<uint16_t, 256> code_of_byte{};
  std::array<int16_t, kAlphabetEnd> byte_of_code{};
};

// Printable Latin-1 characters stand for themselves; the other bytes, in order, for U+0100 onwards.
constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte_of_code) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const int code = printable ? byte : next++;
    alphabet.code_of_byte[byte] = static_cast<uint16_t>(code);
    alphabet.byte_of_code[code] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> BytesOfToken(absl::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Char next = FirstUtf8Char(token);
    if (next.size_bytes == 0 || next.code >= kAlphabetEnd) return std::nullopt;
    const int byte = kAlphabet.byte_of_code[next.code];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    token.remove_prefix(next.size_bytes);
  }
  return bytes;
}

std::string TokenOfBytes(absl::string_view bytes) {
  std::string token;
  for (const char c : bytes) {
    const uint32_t code = kAlphabet.code_of_byte[static_cast<uint8_t>(c)];
    if (code < 0x80) {
      token.push_back(static_cast<char>(code));
    } else {
      token.push_back(static_cast<char>(0xc0 | code >> 6));
      token.push_back(static_cast<char>(0x80 | (code & 0x3f)));
    }
  }
  return token;
}

}  // namespace tessera
