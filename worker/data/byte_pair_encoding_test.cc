// Merges against a plain reference, and what is refused.
#include "worker/data/byte_pair_encoding.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "worker/data/tokenizer_testing.h"

namespace tessera {
namespace {

using Merges = BytePairEncoding::Merges;

// One merge at a time, searched from the left: O(n^2), as the definition reads.
std::vector<int32_t> Reference(const TokenizerDefinition& definition, const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  while (true) {
    size_t best_rank = definition.merges.size();
    size_t best_at = 0;
    for (size_t at = 0; at + 1 < parts.size(); ++at) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (definition.merges[rank] == std::pair(parts[at], parts[at + 1])) {
          best_rank = rank;
          best_at = at;
        }
      }
    }
    if (best_rank == definition.merges.size()) break;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<int64_t>(best_at) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(definition.vocabulary.at(part));
  return ids;
}

std::vector<int32_t> Encode(const BytePairEncoding& encoding, const std::string& text) {
  BytePairEncoding::Scratch scratch;
  std::vector<int32_t> ids;
  encoding.Encode(text, scratch, &ids);
  return ids;
}

TEST(BytePairEncoding, MergesLowestRankThenLeftmost) {
  const TokenizerDefinition definition = TinyDefinition({{"a", "b"}, {"b", "c"}, {"ab", "ab"}});
  auto encoding = BytePairEncoding::Create(definition.vocabulary, definition.merges, false);
  ASSERT_TRUE(encoding.ok()) << encoding.status();
  EXPECT_EQ(Encode(*encoding, "abc"), (std::vector<int32_t>{256, 'c'}));
  EXPECT_EQ(Encode(*encoding, "bcab"), (std::vector<int32_t>{257, 256}));
  EXPECT_EQ(Encode(*encoding, "ababab"), (std::vector<int32_t>{258, 256}));
  EXPECT_EQ(Encode(*encoding, ""), std::vector<int32_t>{});
}

// Random merges over three letters, many of which make the same token or use one that a later merge
// makes; those are the orders in which heap and definition could differ.
TEST(BytePairEncoding, EqualsTheDefinitionForRandomMerges) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Merges merges;
    std::vector<std::string> tokens = {"a", "b", "c"};
    for (int i = 0; i < 12; ++i) {
      std::pair<std::string, std::string> merge(tokens[random() % tokens.size()],
                                                tokens[random() % tokens.size()]);
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      tokens.push_back(merge.first + merge.second);
      merges.push_back(std::move(merge));
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const TokenizerDefinition definition = TinyDefinition(merges);
    auto encoding = BytePairEncoding::Create(definition.vocabulary, merges, false);
    ASSERT_TRUE(encoding.ok()) << encoding.status();
    for (int size = 0; size < 40; ++size) {
      std::string text;
      for (int i = 0; i < size; ++i) text.push_back(static_cast<char>('a' + random() % 3));
      ASSERT_EQ(Encode(*encoding, text), Reference(definition, text)) << text;
    }
  }
}

TEST(BytePairEncoding, WholeTokensFirstSkipsMerges) {
  TokenizerDefinition definition = TinyDefinition({{"a", "b"}});
  definition.vocabulary.emplace("abc", 257);
  for (const bool whole : {false, true}) {
    auto encoding = BytePairEncoding::Create(definition.vocabulary, definition.merges, whole);
    ASSERT_TRUE(encoding.ok());
    EXPECT_EQ(Encode(*encoding, "abc"),
              whole ? std::vector<int32_t>{257} : (std::vector<int32_t>{256, 'c'}));
  }
}

// 2^20 bytes in one pre-token: quadratic work would take minutes.
TEST(BytePairEncoding, LongPretokens) {
  const TokenizerDefinition definition = TinyDefinition({{"a", "a"}, {"aa", "aa"}});
  auto encoding = BytePairEncoding::Create(definition.vocabulary, definition.merges, false);
  ASSERT_TRUE(encoding.ok());
  const std::vector<int32_t> ids = Encode(*encoding, std::string((size_t{1} << 20) + 1, 'a'));
  EXPECT_EQ(ids.size(), (size_t{1} << 18) + 1);
  EXPECT_EQ(ids.front(), 257);
  EXPECT_EQ(ids.back(), 'a');
}

TEST(BytePairEncoding, RefusesBadMergesByName) {
  struct Case {
    Merges merges;
    const char* message;
  };
  const Case cases[] = {
      {{{"a", "b"}, {"a", "b"}}, "merge 1: \"a b\": stands twice"},
      {{{"a", "b"}, {"xy", "b"}}, "merge 1: \"xy b\": a part is not in the vocabulary"},
      {{{" ", "b"}}, "merge 0: \"\u0120 b\": the result is not in the vocabulary"},
  };
  TokenizerDefinition definition = TinyDefinition({{"a", "b"}});
  for (const Case& c : cases) {
    auto encoding = BytePairEncoding::Create(definition.vocabulary, c.merges, false);
    EXPECT_EQ(encoding.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(encoding.status().message(), c.message);
  }
  definition.vocabulary.erase(std::string(1, '\n'));
  EXPECT_EQ(BytePairEncoding::Create(definition.vocabulary, {}, false).status().message(),
            "vocabulary: has no token for byte 10 (\"\u010a\")");
}

}  // namespace
}  // namespace tessera
