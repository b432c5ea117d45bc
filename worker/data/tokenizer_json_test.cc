// tokenizer.json and GPT-2's files, sound and malformed: every refusal names the key.
#include "worker/data/tokenizer_json.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "worker/data/byte_level.h"
#include "worker/data/text_encoder.h"
#include "worker/data/tokenizer_files.h"

namespace tessera {
namespace {

// Written by the library itself, so that nothing of ours makes what ours reads.
using Json = nlohmann::json;

// All bytes, "he" (256) and "hel" (257), added <|endoftext|> (258).
Json Small() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[TokenOfBytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  vocabulary["he"] = 256;
  vocabulary["hel"] = 257;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", 258},
             {"content", "<|endoftext|>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", {"h e", "he l"}}}}};
}

Json Split(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json Sequence(std::vector<Json> parts) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
}

const Json kByteLevelAlone = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", false}};

struct Edit {
  std::string name;
  std::function<void(Json&)> change;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // a part of it
};

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

TEST(TokenizerJson, EncodesWithMergesOfEitherForm) {
  for (const Json& merges : {Json::array({"h e", "he l"}),
                             Json::array({Json::array({"h", "e"}), Json::array({"he", "l"})})}) {
    Json json = Small();
    json["model"]["merges"] = merges;
    absl::StatusOr<TokenizerDefinition> definition = ParseTokenizerJson(json.dump(), "");
    ASSERT_TRUE(definition.ok()) << definition.status();
    EXPECT_EQ(definition->end_of_text, "<|endoftext|>");
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        Tokenizer::Create(*std::move(definition));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    TextEncoder encoder(**tokenizer, SpecialTokens::kRecognised);
    EXPECT_EQ(*encoder.Encode("hell<|endoftext|>"), (std::vector<int32_t>{257, 'l', 258}));
    EXPECT_EQ((*tokenizer)->end_of_text(), 258);
  }
}

TEST(TokenizerJson, ReadsWhatChangesTheCuts) {
  const std::string llama(RegexOf(SplitPattern::kLlama3));
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json byte_level = Small()["pre_tokenizer"];
  struct Case {
    Json pre_tokenizer;
    SplitPattern pattern;
    DigitSplit digits;
  };
  const Case cases[] = {
      {byte_level, SplitPattern::kGpt2, DigitSplit::kNone},
      {Sequence({Split(llama), kByteLevelAlone}), SplitPattern::kLlama3, DigitSplit::kNone},
      {Sequence({digits, byte_level}), SplitPattern::kGpt2, DigitSplit::kEach},
      {Sequence({Sequence({Split(std::string(RegexOf(SplitPattern::kQwen2)))}), kByteLevelAlone}),
       SplitPattern::kQwen2, DigitSplit::kNone},
  };
  for (const Case& c : cases) {
    Json json = Small();
    json["pre_tokenizer"] = c.pre_tokenizer;
    json["normalizer"] = {{"type", "NFC"}};
    json["model"]["ignore_merges"] = true;
    absl::StatusOr<TokenizerDefinition> definition = ParseTokenizerJson(json.dump(), "");
    ASSERT_TRUE(definition.ok()) << definition.status();
    EXPECT_EQ(definition->pattern, c.pattern);
    EXPECT_EQ(definition->digits, c.digits);
    EXPECT_TRUE(definition->normalize_nfc);
    EXPECT_TRUE(definition->whole_tokens_first);
  }
}

TEST(TokenizerJson, NamesWhatItRefuses) {
  const Edit edits[] = {
      {"key", [](Json& j) { j["extra"] = 1; }, kUnsupported,
       "extra: 1: not supported: this key is not known"},
      {"version", [](Json& j) { j["version"] = "2.0"; }, kUnsupported, "version: \"2.0\""},
      {"version_number", [](Json& j) { j["version"] = 1.0; }, kUnsupported, "version: 1.0"},
      // Of the 80 bytes that are shown the last would be half a character.
      {"version_long",
       [](Json& j) {
         std::string text;
         for (int i = 0; i < 100; ++i) text += "\u00e9";
         j["version"] = text;
       },
       kUnsupported, "\u00e9\u00e9...: not supported"},
      {"truncation",
       [](Json& j) {
         j["truncation"] = {{"max_length", 5}};
       },
       kUnsupported, "truncation: an object"},
      {"padding", [](Json& j) { j["padding"] = 1; }, kUnsupported, "padding: 1"},
      {"lower",
       [](Json& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       },
       kUnsupported, "normalizer.type: \"Lowercase\""},
      {"nfc_chain",
       [](Json& j) {
         j["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}};
       },
       kUnsupported, "normalizer.normalizers[1].type: \"Strip\""},
      {"normalized",
       [](Json& j) {
         j["normalizer"] = {{"type", "NFC"}};
         j["added_tokens"][0]["normalized"] = true;
       },
       kUnsupported, "added_tokens[0].normalized"},
      {"no_pre", [](Json& j) { j.erase("pre_tokenizer"); }, kBad, "pre_tokenizer: required"},
      {"null_pre", [](Json& j) { j["pre_tokenizer"] = nullptr; }, kBad,
       "pre_tokenizer: null: required"},
      {"whitespace",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       kUnsupported, "pre_tokenizer.type: \"Whitespace\""},
      {"prefix", [](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, kUnsupported,
       "pre_tokenizer.add_prefix_space: true"},
      {"no_regex", [](Json& j) { j["pre_tokenizer"] = kByteLevelAlone; }, kUnsupported,
       "pre_tokenizer.use_regex"},
      {"regex",
       [](Json& j) {
         j["pre_tokenizer"] = Sequence({Split("\\s+"), kByteLevelAlone});
       },
       kUnsupported, "pre_tokenizer.pretokenizers[0].pattern.Regex: \"\\\\s+\""},
      {"removed",
       [](Json& j) {
         j["pre_tokenizer"] = Sequence({Split(std::string(RegexOf(SplitPattern::kQwen2)))});
         j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
       },
       kUnsupported, "behavior: \"Removed\""},
      {"no_bytes",
       [](Json& j) {
         j["pre_tokenizer"] = Sequence({Split(std::string(RegexOf(SplitPattern::kQwen2)))});
       },
       kUnsupported, "must end with ByteLevel"},
      {"post",
       [](Json& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       },
       kUnsupported, "post_processor.type: \"BertProcessing\""},
      {"decoder",
       [](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       kUnsupported, "decoder.type: \"WordPiece\""},
      {"model", [](Json& j) { j["model"]["type"] = "Unigram"; }, kUnsupported,
       "model.type: \"Unigram\""},
      {"dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }, kUnsupported, "model.dropout: 0.1"},
      {"dropout_zero", [](Json& j) { j["model"]["dropout"] = 0; }, absl::StatusCode::kOk, ""},
      {"fallback", [](Json& j) { j["model"]["byte_fallback"] = true; }, kUnsupported,
       "model.byte_fallback: true"},
      {"suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, kUnsupported,
       "model.end_of_word_suffix: \"</w>\""},
      {"model_key", [](Json& j) { j["model"]["cache"] = 1; }, kUnsupported, "model.cache: 1"},
      {"vocab", [](Json& j) { j["model"]["vocab"] = Json::array(); }, kBad,
       "model.vocab: an array: must be an object"},
      {"id", [](Json& j) { j["model"]["vocab"]["he"] = -1; }, kBad,
       "model.vocab[\"he\"]: -1: must be a whole number"},
      {"huge_id", [](Json& j) { j["model"]["vocab"]["he"] = 4294967296; }, kBad,
       "model.vocab[\"he\"]: 4294967296"},
      {"float_id", [](Json& j) { j["model"]["vocab"]["he"] = 256.0; }, kBad,
       "model.vocab[\"he\"]: 256.0"},
      {"alphabet", [](Json& j) { j["model"]["vocab"]["a b"] = 258; }, kBad,
       "model.vocab[\"a b\"]: 258: must be characters that stand for bytes"},
      {"merges", [](Json& j) { j["model"].erase("merges"); }, kBad, "model.merges: required"},
      {"merge", [](Json& j) { j["model"]["merges"][1] = "hel"; }, kBad,
       "model.merges[1]: \"hel\": must be two tokens"},
      {"merge_three",
       [](Json& j) {
         j["model"]["merges"][1] = {"h", "e", "l"};
       },
       kBad, "model.merges[1]: an array"},
      {"merge_two_spaces", [](Json& j) { j["model"]["merges"][1] = "he  l"; }, kBad,
       "model.merges[1]"},
      {"added", [](Json& j) { j["added_tokens"] = 1; }, kBad, "added_tokens: 1: must be an array"},
      {"added_id", [](Json& j) { j["added_tokens"][0]["id"] = "258"; }, kBad,
       "added_tokens[0].id: \"258\""},
      {"lstrip", [](Json& j) { j["added_tokens"][0]["lstrip"] = true; }, kUnsupported,
       "added_tokens[0].lstrip: true"},
      {"added_other_id", [](Json& j) { j["added_tokens"][0]["content"] = "he"; }, kBad,
       "model.vocab[\"he\"]: 256: its added token has id 258"},
      {"root", [](Json& j) { j = Json::array(); }, kBad, "(root): an array: must be an object"},
  };
  for (const Edit& edit : edits) {
    Json json = Small();
    edit.change(json);
    const absl::Status status = ParseTokenizerJson(json.dump(), "").status();
    EXPECT_EQ(status.code(), edit.code) << edit.name << " " << status;
    EXPECT_NE(status.message().find(edit.message), absl::string_view::npos)
        << edit.name << " " << status;
  }
}

TEST(TokenizerJson, EndOfTextIsTheConfigs) {
  struct Case {
    const char* config;
    std::string end_of_text;
    const char* error;
  };
  const Case cases[] = {
      {R"({"eos_token": "he", "model_max_length": 5})", "he", ""},
      {R"({"eos_token": {"content": "<|endoftext|>"}})", "<|endoftext|>", ""},
      {R"({"eos_token": null})", "", ""},
      {R"({"eos_token": "no"})", "", "tokenizer_config.json: eos_token: \"no\": must be a token"},
      {R"({"eos_token": 5})", "", "tokenizer_config.json: eos_token: 5: must be a string"},
      {R"({"add_prefix_space": true})", "", "tokenizer_config.json: add_prefix_space: true"},
      {"[", "", "tokenizer_config.json: JSON at byte 2: a syntax error"},
  };
  for (const Case& c : cases) {
    absl::StatusOr<TokenizerDefinition> definition = ParseTokenizerJson(Small().dump(), c.config);
    EXPECT_EQ(definition.ok(), *c.error == '\0') << c.config << definition.status();
    if (definition.ok()) {
      EXPECT_EQ(definition->end_of_text, c.end_of_text);
    }
    EXPECT_NE(definition.status().message().find(c.error), absl::string_view::npos)
        << definition.status();
  }
}

TEST(TokenizerJson, JsonIsStrictAndBounded) {
  std::string many = "[0";
  for (int i = 0; i < (1 << 22); ++i) many += ",0";
  struct Case {
    std::string text;
    const char* error;
  };
  const Case cases[] = {{R"({"version": "1.0", "version": "1.0"})", "duplicate key 'version'"},
                        {std::string(100000, '['), "JSON is nested deeper than 64 levels"},
                        {many + "]", "JSON has more than 4194304 values"},
                        {"{\"a\": \"\xff\"}", "JSON at byte 8: a syntax error"},
                        {R"({"a": "\ud800"})", "JSON at byte 14: a syntax error"},
                        {"{} x", "JSON at byte 4: a syntax error"},
                        {"", "JSON at byte 1: a syntax error"},
                        {R"({"a": 1e999})", "a number out of range"}};
  for (const Case& c : cases) {
    const absl::Status status = ParseTokenizerJson(c.text, "").status();
    EXPECT_EQ(status.code(), kBad);
    EXPECT_NE(status.message().find(c.error), absl::string_view::npos) << status;
  }
}

TEST(Gpt2Files, ReadsMergesAndNamesBadLines) {
  const std::string vocabulary = Small()["model"]["vocab"].dump();
  absl::StatusOr<TokenizerDefinition> definition =
      ParseGpt2Tokenizer(vocabulary, "#version: 0.2\nh e\nhe l\n");
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_EQ(definition->merges, (BytePairEncoding::Merges{{"h", "e"}, {"he", "l"}}));
  EXPECT_EQ(definition->end_of_text, "");
  EXPECT_EQ(ParseGpt2Tokenizer(vocabulary, "h e\nhe l")->merges, definition->merges);
  struct Case {
    const char* merges;
    const char* error;
  };
  const Case cases[] = {{"h e\n\nhe l\n", "merges, line 2: must be two tokens"},
                        {"h e\r\n", "merges, line 1: h e\\r: must be two tokens"},
                        {" e\n", "merges, line 1"}};
  for (const Case& c : cases) {
    const absl::Status status = ParseGpt2Tokenizer(vocabulary, c.merges).status();
    EXPECT_EQ(status.code(), kBad);
    EXPECT_NE(status.message().find(c.error), absl::string_view::npos) << status;
  }
  EXPECT_EQ(ParseGpt2Tokenizer("5", "").status().message(), "vocabulary: 5: must be an object");
}

TEST(TokenizerFiles, AreFoundByFolderOrFile) {
  std::string folder = testing::TempDir() + "/tokenizerXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  };
  EXPECT_EQ(FindTokenizerFiles(folder).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindTokenizerFiles(folder + "/no").status().code(), absl::StatusCode::kNotFound);
  write("encoder.json", Small()["model"]["vocab"].dump());
  write("vocab.bpe", "h e\nhe l\n");
  ASSERT_TRUE(FindTokenizerFiles(folder).ok());
  EXPECT_EQ(FindTokenizerFiles(folder)->paths(),
            (std::vector<std::string>{folder + "/encoder.json", folder + "/vocab.bpe"}));
  EXPECT_EQ((*LoadTokenizer(*FindTokenizerFiles(folder)))->vocab_size(), 258);
  write("tokenizer.json", Small().dump());
  for (const std::string& path : {folder, folder + "/tokenizer.json"}) {
    absl::StatusOr<TokenizerFiles> files = FindTokenizerFiles(path);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->paths(), std::vector<std::string>{folder + "/tokenizer.json"});
    EXPECT_EQ((*LoadTokenizer(*files))->vocab_size(), 259);
  }
  write("tokenizer_config.json", "{");
  const absl::Status status = LoadTokenizer(*FindTokenizerFiles(folder)).status();
  EXPECT_EQ(status.code(), kBad);
  EXPECT_TRUE(absl::StartsWith(status.message(), folder + "/tokenizer.json: tokenizer_config.json"))
      << status;
  write("tokenizer_config.json", "{}");
  std::filesystem::resize_file(folder + "/tokenizer.json", kMaxTokenizerFileBytes + 1);
  EXPECT_EQ(LoadTokenizer(*FindTokenizerFiles(folder)).status().message(),
            folder + "/tokenizer.json: has 67108865 bytes, more than 67108864");
}

}  // namespace
}  // namespace tessera
