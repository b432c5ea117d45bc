// Encoding of text that comes in any blocks, added tokens, normalization, and the way back.
#include "worker/data/text_encoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "worker/data/tokenizer_testing.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

Ids EncodeInBlocks(const Tokenizer& tokenizer, SpecialTokens special, const std::string& text,
                   size_t step) {
  TextEncoder encoder(tokenizer, special);
  Ids ids;
  for (size_t begin = 0; begin < text.size(); begin += step) {
    EXPECT_TRUE(encoder.Feed(text.substr(begin, step), &ids).ok());
  }
  EXPECT_TRUE(encoder.Finish(&ids).ok());
  return ids;
}

Ids Encode(const Tokenizer& tokenizer, SpecialTokens special, const std::string& text) {
  absl::StatusOr<Ids> ids = TextEncoder(tokenizer, special).Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

// Merges 256 "he", 257 "hel", 258 " h", 259 " he"; added 260 <s> (special), 261 <s>2 and 262 <t.
TokenizerDefinition SmallDefinition() {
  return TinyDefinition({{"h", "e"}, {"he", "l"}, {" ", "h"}, {" h", "e"}},
                        {{"<s>", true}, {"<s>2", false}, {"<t", false}});
}

TEST(TextEncoder, AddedTokensComeFirstAndTheLongestWins) {
  const auto tokenizer = MustCreate(SmallDefinition());
  struct Case {
    std::string text;
    Ids recognised, as_text;
  };
  const Case cases[] = {
      {"hel<s>hel", {257, 260, 257}, {257, '<', 's', '>', 257}},
      {"<s>2<s>", {261, 260}, {261, '<', 's', '>'}},
      {"<<s>", {'<', 260}, {'<', '<', 's', '>'}},
      {"<t<tt", {262, 262, 't'}, {262, 262, 't'}},
      {"<s", {'<', 's'}, {'<', 's'}},
      // The text before an added token is cut as if it ended there: both spaces go together.
      {"  <t", {' ', ' ', 262}, {' ', ' ', 262}},
      {"", {}, {}},
  };
  for (const Case& c : cases) {
    for (size_t step = 1; step <= c.text.size() + 1; ++step) {
      EXPECT_EQ(EncodeInBlocks(*tokenizer, SpecialTokens::kRecognised, c.text, step), c.recognised)
          << c.text << " by " << step;
      EXPECT_EQ(EncodeInBlocks(*tokenizer, SpecialTokens::kAsText, c.text, step), c.as_text)
          << c.text << " by " << step;
    }
  }
}

// Text of pieces that meet badly: parts of characters, of added tokens, runs of spaces and breaks.
std::string RandomText(std::mt19937& random) {
  const char* const pieces[] = {
      "he",   "hel",      "l",      " ",      "  ",     "\n",     "\r\n",         "\t",
      "<s>",  "<s",       "<t",     "s>",     "2",      "12345",  "'s",           "'S",
      "é",    "e\u0301",  "\u0301", "\u0338", "猫",     "가",     "\u1100\u1161", "😀",
      "\xff", "\xe2\x82", "\x80",   "\xc3",   "\u00a0", "\u180e", "!?",           ">"};
  std::string text;
  for (int i = static_cast<int>(random() % 24); i > 0; --i) {
    text += pieces[random() % std::size(pieces)];
  }
  return text;
}

struct Kind {
  const char* name;
  SplitPattern pattern;
  DigitSplit digits;
  bool nfc;
};

class AnyBlocks : public testing::TestWithParam<Kind> {};

TEST_P(AnyBlocks, GiveTheIdsOfTheWholeAndTheWayBack) {
  TokenizerDefinition definition = SmallDefinition();
  definition.pattern = GetParam().pattern;
  definition.digits = GetParam().digits;
  definition.normalize_nfc = GetParam().nfc;
  const auto tokenizer = MustCreate(std::move(definition));
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::string text = RandomText(random);
    for (const SpecialTokens special : {SpecialTokens::kRecognised, SpecialTokens::kAsText}) {
      const Ids whole = Encode(*tokenizer, special, text);
      for (const size_t step : {1, 2, 3, 5, 8, 13}) {
        ASSERT_EQ(EncodeInBlocks(*tokenizer, special, text, step), whole) << text << " by " << step;
      }
      if (!GetParam().nfc) {
        const absl::StatusOr<std::string> back = tokenizer->Decode(whole);
        ASSERT_TRUE(back.ok()) << back.status();
        ASSERT_EQ(*back, text);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, AnyBlocks,
    testing::Values(Kind{"Gpt2", SplitPattern::kGpt2, DigitSplit::kNone, false},
                    Kind{"Llama3", SplitPattern::kLlama3, DigitSplit::kNone, false},
                    Kind{"Qwen2", SplitPattern::kQwen2, DigitSplit::kNone, true},
                    Kind{"DigitsEach", SplitPattern::kGpt2, DigitSplit::kEach, false},
                    Kind{"DigitsRuns", SplitPattern::kLlama3, DigitSplit::kRuns, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TextEncoder, AnyBytesComeBack) {
  const auto tokenizer = MustCreate(SmallDefinition());
  std::mt19937 random(3);
  std::string text(size_t{1} << 16, '\0');
  for (char& c : text) c = static_cast<char>(random());
  EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, SpecialTokens::kAsText, text)), text);
}

// U+0301 composes with the letter before; a mark after an added token with nothing.
TEST(TextEncoder, NormalizesToFormC) {
  TokenizerDefinition definition = SmallDefinition();
  definition.normalize_nfc = true;
  const auto tokenizer = MustCreate(std::move(definition));
  struct Case {
    const char* text;
    const char* normal;
  };
  const Case cases[] = {{"e\u0301x", "éx"},
                        {"<s>\u0338", "<s>\u0338"},
                        {">\u0338", "\u226f"},
                        {"\u1100\u1161\u11a8", "\uac01"},
                        {"a\u0323\u0302 \u212b", "\u1ead \u00c5"},
                        {"e\xff\u0301", "e\xff\u0301"},
                        {"e\u0301\xe2\x82"
                         "e\u0301",
                         "é\xe2\x82é"},
                        {"plain", "plain"}};
  for (const Case& c : cases) {
    const std::string text = c.text;
    for (size_t step = 1; step <= text.size(); ++step) {
      const Ids ids = EncodeInBlocks(*tokenizer, SpecialTokens::kRecognised, text, step);
      EXPECT_EQ(*tokenizer->Decode(ids), c.normal) << text << " by " << step;
    }
  }
}

// More different words than the cache holds, each twice; ids are those of a fresh encoder.
TEST(TextEncoder, TheCacheChangesNothing) {
  const auto tokenizer = MustCreate(SmallDefinition());
  TextEncoder encoder(*tokenizer, SpecialTokens::kAsText);
  std::string text;
  for (int i = 0; i < 140000; ++i) text += absl::StrCat(" he", i % 70000 * 7919);
  const Ids first = *encoder.Encode(text);
  EXPECT_EQ(*encoder.Encode(text), first);
  EXPECT_EQ(*tokenizer->Decode(first), text);
}

TEST(TextEncoder, TextWithoutACutIsRefusedAndForgotten) {
  const auto tokenizer = MustCreate(SmallDefinition());
  TextEncoder encoder(*tokenizer, SpecialTokens::kAsText);
  const absl::Status status =
      encoder.Encode(std::string(TextEncoder::kMaxPretokenBytes + (2 << 20), 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "text: has no place to cut for more than 16777216 bytes");
  EXPECT_EQ(*encoder.Encode("hel"), Ids{257});
}

TEST(Tokenizer, RefusesIdsThatNoTokenOrTwoTokensHave) {
  struct Case {
    const char* message;
    std::function<void(TokenizerDefinition&)> edit;
  };
  const Case cases[] = {
      {"vocabulary: id 263 has no token, but 264 has one",
       [](auto& d) {
         d.added_tokens.push_back({"h", 'h', false});  // has its id from the vocabulary
         d.vocabulary.emplace("xy", 264);
       }},
      {"token \"xy\": id 264 is not in 0 .. 263, the range of 264 tokens without holes",
       [](auto& d) { d.vocabulary.emplace("xy", 264); }},
      {"token \"xy\": id 2000000000 is not in 0 .. 263, the range of 264 tokens without holes",
       [](auto& d) { d.vocabulary.emplace("xy", 2000000000); }},
      {"token \"<s>\": id 256 is also that of \"he\"", [](auto& d) { d.added_tokens[0].id = 256; }},
      {"token \"<t\": is added twice",
       [](auto& d) {
         d.added_tokens.push_back({"<t", 263, false});
       }},
      {"added token 260: is empty", [](auto& d) { d.added_tokens[0].content.clear(); }},
      {"token \"<end>\": the end of text is not in the vocabulary",
       [](auto& d) { d.end_of_text = "<end>"; }},
  };
  for (const Case& c : cases) {
    TokenizerDefinition definition = SmallDefinition();
    c.edit(definition);
    const absl::Status status = Tokenizer::Create(std::move(definition)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST(Tokenizer, DecodesOnlyItsOwnIds) {
  const auto tokenizer = MustCreate(SmallDefinition());
  EXPECT_EQ(tokenizer->vocab_size(), 263);
  EXPECT_EQ(*tokenizer->Decode({260, 257, '!'}), "<s>hel!");
  for (const int32_t id : {-1, 263}) {
    EXPECT_EQ(tokenizer->Decode({0, id}).status().message(),
              absl::StrCat("ids[1]: ", id, ": must be 0 .. 262, the vocabulary"));
  }
}

}  // namespace
}  // namespace tessera
