// Strict UTF-8 (The Unicode Standard 15, table 3-7): no surrogates, no overlong forms, nothing
// above U+10FFFF.
#ifndef TESSERA_STORAGE_UTF8_H_
#define TESSERA_STORAGE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Bytes of the longest prefix that is ASCII.
size_t AsciiPrefix(absl::string_view text);

// What the first bytes of a text are.
struct Utf8Char {
  int size_bytes = 0;      // 1 .. 4; 0: no character
  bool truncated = false;  // with 0: the text ends inside what may become a character
  uint32_t code = 0;       // with 1 .. 4: the code point
};
// REQUIRES: text is not empty.
Utf8Char FirstUtf8Char(absl::string_view text);

// Bytes of the longest prefix that is whole, valid characters.
size_t ValidUtf8Prefix(absl::string_view text);

bool IsUtf8(absl::string_view text);

// Characters, where a byte that is part of no valid character counts as one.
int64_t CountUtf8Chars(absl::string_view text);

// The byte at which character `index` begins, counted as CountUtf8Chars does; text.size() if there
// are not so many.
size_t Utf8CharBegin(absl::string_view text, int64_t index);

}  // namespace tessera

#endif  // TESSERA_STORAGE_UTF8_H_
