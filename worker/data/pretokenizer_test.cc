// Cuts by each pattern, with the cases that tell engines apart, and the same cuts however the text
// comes in.
#include "worker/data/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

using Pieces = std::vector<std::string>;

Pieces Cut(const Pretokenizer& pretokenizer, const std::string& text) {
  PretokenReader reader(pretokenizer);
  reader.Reset(text, true);
  Pieces pieces;
  absl::string_view piece;
  while (true) {
    absl::StatusOr<bool> more = reader.Next(&piece);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return pieces;
    pieces.emplace_back(piece);
  }
}

// As a stream that brings `step` bytes at a time.
Pieces CutInBlocks(const Pretokenizer& pretokenizer, const std::string& text, size_t step) {
  PretokenReader reader(pretokenizer);
  Pieces pieces;
  std::string held;
  for (size_t begin = 0; begin < text.size() + step; begin += step) {
    if (begin < text.size()) held += text.substr(begin, step);
    reader.Reset(held, begin >= text.size());
    absl::string_view piece;
    while (true) {
      absl::StatusOr<bool> more = reader.Next(&piece);
      EXPECT_TRUE(more.ok()) << more.status();
      if (!more.ok() || !*more) break;
      pieces.emplace_back(piece);
    }
    held.erase(0, reader.at());
  }
  EXPECT_EQ(held, "");
  return pieces;
}

struct Case {
  const char* name;
  SplitPattern pattern;
  DigitSplit digits;
  std::string text;
  Pieces pieces;
};

const Case kCases[] = {
    {"Gpt2Words",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "Hello world's 123ab",
     {"Hello", " world", "'s", " 123", "ab"}},
    {"Gpt2SpacesLeaveOneForTheWord",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "a   b \n\n c  ",
     {"a", "  ", " b", " \n\n", " c", "  "}},
    {"Gpt2UpperCaseIsNoContraction",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "IT'S",
     {"IT", "'", "S"}},
    {"Gpt2UnicodeClasses",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "Führer ½Ⅷ٣ 猫の!?",
     {"Führer", " ½Ⅷ٣", " 猫の", "!?"}},
    {"Gpt2NoBreakSpaceIsSpace",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "a\u00a0\u2003b",
     {"a", "\u00a0", "\u2003", "b"}},
    {"Gpt2NextLineIsSpace",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "a\u0085b",
     {"a", "\u0085", "b"}},
    {"Gpt2MongolianVowelSeparatorIsNone",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     " \u180e!",
     {" \u180e!"}},
    {"Gpt2InformationSeparatorIsNone",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     " \x1c!",
     {" \x1c!"}},
    {"Gpt2CombiningMarksAreNoLetters",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "e\u0301x",
     {"e", "\u0301", "x"}},
    {"Gpt2InvalidBytesStandAlone",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "ab \xff\xfe cd \xe2\x82",
     {"ab", " ", "\xff", "\xfe", " cd", " ", "\xe2", "\x82"}},
    {"Gpt2SurrogatesAreInvalid",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     "\xed\xa0\x80",
     {"\xed", "\xa0", "\x80"}},
    {"Gpt2Nul",
     SplitPattern::kGpt2,
     DigitSplit::kNone,
     std::string("a\0b", 3),
     {"a", std::string(1, '\0'), "b"}},
    {"Gpt2Empty", SplitPattern::kGpt2, DigitSplit::kNone, "", {}},
    {"Llama3",
     SplitPattern::kLlama3,
     DigitSplit::kNone,
     "IT'S 12345 (foo) bar!\n\n  x\n   \n y",
     {"IT", "'S", " ", "123", "45", " (", "foo", ")", " bar", "!\n\n", " ", " x", "\n   \n", " y"}},
    {"Llama3LongS", SplitPattern::kLlama3, DigitSplit::kNone, "x'\u017f", {"x", "'\u017f"}},
    {"Llama3SpacesUpToTheLastLineBreak",
     SplitPattern::kLlama3,
     DigitSplit::kNone,
     "a \r\n \t \n\t b",
     {"a", " \r\n \t \n", "\t", " b"}},
    {"Qwen2", SplitPattern::kQwen2, DigitSplit::kNone, "x12 3", {"x", "1", "2", " ", "3"}},
    {"DigitsEach",
     SplitPattern::kGpt2,
     DigitSplit::kEach,
     "ab 12  3c",
     {"ab", " ", "1", "2", "  ", "3", "c"}},
    {"DigitsRuns",
     SplitPattern::kGpt2,
     DigitSplit::kRuns,
     "ab 12  345",
     {"ab", " ", "12", "  ", "345"}},
    {"DigitsRunsThenThrees",
     SplitPattern::kLlama3,
     DigitSplit::kRuns,
     "a12345b",
     {"a", "123", "45", "b"}},
    {"DigitsAndInvalidBytes",
     SplitPattern::kGpt2,
     DigitSplit::kRuns,
     "1\xff"
     "2 \xc3",
     {"1", "\xff", "2", " ", "\xc3"}},
};

class PretokenizerTest : public testing::TestWithParam<Case> {};

TEST_P(PretokenizerTest, CutsTheSameHoweverTheTextComes) {
  const Case& c = GetParam();
  absl::StatusOr<Pretokenizer> pretokenizer = Pretokenizer::Create(c.pattern, c.digits);
  ASSERT_TRUE(pretokenizer.ok()) << pretokenizer.status();
  EXPECT_EQ(Cut(*pretokenizer, c.text), c.pieces);
  for (size_t step = 1; step <= c.text.size(); ++step) {
    EXPECT_EQ(CutInBlocks(*pretokenizer, c.text, step), c.pieces) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PretokenizerTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Pretokenizer, PatternsAreFoundByTheirText) {
  for (const SplitPattern pattern :
       {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    EXPECT_EQ(FindSplitPattern(RegexOf(pattern)), pattern);
  }
  EXPECT_EQ(FindSplitPattern(R"(\s+)"), std::nullopt);
}

// PCRE2's interpreter has a limit of matching steps; a long run must not pass it, nor take
// quadratic time.
TEST(Pretokenizer, LongRunsAreOnePiece) {
  for (const SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3}) {
    absl::StatusOr<Pretokenizer> pretokenizer = Pretokenizer::Create(pattern, DigitSplit::kNone);
    ASSERT_TRUE(pretokenizer.ok());
    for (const char c : {' ', 'x', '!'}) {
      const std::string run(size_t{1} << 22, c);
      EXPECT_EQ(Cut(*pretokenizer, run).size(), 1u) << c;
    }
  }
}

}  // namespace
}  // namespace tessera
