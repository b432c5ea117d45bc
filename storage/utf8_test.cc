#include "storage/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace tessera {
namespace {

TEST(Utf8, TellsValidFromInvalid) {
  for (const char* text : {"", "a", "é", "€", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const char* text :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "a\xffz", "\xe2\x82z"}) {
    EXPECT_FALSE(IsUtf8(text)) << absl::CHexEscape(text);
    // Also behind a stretch that is looked at eight bytes at a time.
    const std::string longer = std::string(19, 'a') + text;
    EXPECT_FALSE(IsUtf8(longer)) << absl::CHexEscape(text);
  }
}

TEST(Utf8, DecodesTheFirstCharacter) {
  const struct {
    const char* text;
    int size_bytes;
    bool truncated;
    uint32_t code;
  } kCases[] = {
      {"az", 1, false, 'a'},
      {"\u00e9z", 2, false, 0xe9},
      {"\u20acz", 3, false, 0x20ac},
      {"\U0001f600z", 4, false, 0x1f600},
      {"\U0010ffff", 4, false, 0x10ffff},
      {"\xe2\x82", 0, true, 0},
      {"\xe2\x82z", 0, false, 0},
      {"\xed\xa0\x80", 0, false, 0},
      {"\xff", 0, false, 0},
  };
  for (const auto& c : kCases) {
    const Utf8Char first = FirstUtf8Char(c.text);
    EXPECT_EQ(first.size_bytes, c.size_bytes) << absl::CHexEscape(c.text);
    EXPECT_EQ(first.truncated, c.truncated) << absl::CHexEscape(c.text);
    if (c.size_bytes > 0) {
      EXPECT_EQ(first.code, c.code) << absl::CHexEscape(c.text);
    }
  }
}

TEST(Utf8, CountsAByteOfNoCharacterAsOne) {
  const absl::string_view text = "a\u20ac\xff\xe2\x82z";  // 1, 3, 1, 1, 1, 1 bytes
  EXPECT_EQ(CountUtf8Chars(text), 6);
  const size_t begins[] = {0, 1, 4, 5, 6, 7, 8, 8};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(Utf8CharBegin(text, static_cast<int64_t>(i)), begins[i]) << i;
  }
  EXPECT_EQ(ValidUtf8Prefix(text), 4u);
  EXPECT_EQ(AsciiPrefix(text), 1u);
  EXPECT_EQ(AsciiPrefix("0123456789\u20ac"), 10u);
}

}  // namespace
}  // namespace tessera
