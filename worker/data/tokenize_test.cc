// The token files that come of text: against a plain encoding of the whole, and nanoGPT's own.
#include "worker/data/tokenize.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/byte_level.h"
#include "worker/data/shared_data.h"
#include "worker/data/text_encoder.h"
#include "worker/data/token_source.h"
#include "worker/data/tokenizer_files.h"

namespace tessera {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Uint16(const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes.append(reinterpret_cast<const char*>(&id), 2);
  return bytes;
}

class TokenizeTest : public testing::Test {
 protected:
  TokenizeTest() {
    folder_ = testing::TempDir() + "/tokenizeXXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) abort();
    options_.tokenizer = folder_;
    options_.input = folder_ + "/input";
    options_.output = folder_ + "/out.bin";
    options_.format = v1::DATA_FORMAT_NANOGPT;
    WriteTokenizer("");
  }

  // All bytes, "he" (256), " he" (257), <|endoftext|> (258), then `more` entries.
  void WriteTokenizer(const std::string& more) {
    std::string vocabulary = "{\"he\": 256, \"\u0120he\": 257, \"<|endoftext|>\": 258";
    for (int byte = 0; byte < 256; ++byte) {
      std::string token = TokenOfBytes(std::string(1, static_cast<char>(byte)));
      if (token == "\"" || token == "\\") token.insert(0, "\\");
      absl::StrAppend(&vocabulary, ", \"", token, "\": ", byte);
    }
    Write("vocab.json", absl::StrCat(vocabulary, more, "}"));
    Write("merges.txt", "h e\n\u0120 he\n");
  }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  std::vector<int32_t> Encode(const std::string& text) {
    auto tokenizer = LoadTokenizer(*FindTokenizerFiles(folder_));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *TextEncoder(**tokenizer, options_.special).Encode(text);
  }
  // Names in the folder that are not there before a run.
  std::vector<std::string> Outputs() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name.find("out") == 0) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  TokenizeOptions options_;
};

// 5 MiB and more go through in blocks of 1 MiB: words, numbers, runs of spaces, characters of
// several bytes and invalid ones lie across their borders.
TEST_F(TokenizeTest, BlocksGiveTheTokensOfTheWhole) {
  std::mt19937 random(11);
  const char* const pieces[] = {"he", " he", "    ", "\n\n", "123", "猫", "é", "\xff", "'s", "x"};
  std::string text;
  while (text.size() < (5 << 20)) text += pieces[random() % std::size(pieces)];
  text += std::string(3 << 20, ' ') + "he" + std::string(2 << 20, 'x');
  Write("input", text);
  int64_t seen = 0;
  options_.progress = [&](int64_t tokens) {
    EXPECT_GE(tokens, seen);
    seen = tokens;
  };
  absl::StatusOr<TokenizeResult> result = TokenizeFile(options_);
  ASSERT_TRUE(result.ok()) << result.status();
  // One piece of text in one step, as no stream would bring it.
  auto tokenizer = LoadTokenizer(*FindTokenizerFiles(folder_));
  TextEncoder encoder(**tokenizer, SpecialTokens::kAsText);
  std::vector<int32_t> whole;
  ASSERT_TRUE(encoder.Feed(text, &whole).ok());
  ASSERT_TRUE(encoder.Finish(&whole).ok());
  EXPECT_TRUE(ReadAll(options_.output) == Uint16(whole));
  EXPECT_EQ(result->files[0].num_tokens, static_cast<int64_t>(whole.size()));
  EXPECT_EQ(seen, static_cast<int64_t>(whole.size()));
  EXPECT_EQ(result->input_bytes, static_cast<int64_t>(text.size()));
}

TEST_F(TokenizeTest, SplitsByCharactersAndEndsEachPart) {
  Write("input", "ééé hehe");  // 8 characters, 11 bytes
  options_.split = 0.5;
  options_.append_end_of_text = true;
  absl::StatusOr<TokenizeResult> result = TokenizeFile(options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Outputs(), (std::vector<std::string>{"out_train.bin", "out_val.bin"}));
  EXPECT_EQ(ReadAll(folder_ + "/out_train.bin"),
            Uint16({0xc3, 0xa9, 0xc3, 0xa9, 0xc3, 0xa9, ' ', 258}));
  EXPECT_EQ(ReadAll(folder_ + "/out_val.bin"), Uint16({256, 256, 258}));
  EXPECT_EQ(result->files[1].num_tokens, 3);
}

TEST_F(TokenizeTest, SplitsJsonLinesByLines) {
  Write("input", "{\"t\":\"a\"}\n{\"t\":\"b\"}\n{\"t\":\"c\"}");
  options_.input_format = {true, "t"};
  options_.split = 0.67;
  options_.append_end_of_text = true;
  ASSERT_TRUE(TokenizeFile(options_).ok());
  EXPECT_EQ(ReadAll(folder_ + "/out_train.bin"), Uint16({'a', 258, 'b', 258}));
  EXPECT_EQ(ReadAll(folder_ + "/out_val.bin"), Uint16({'c', 258}));
}

TEST_F(TokenizeTest, WhatItWritesIsRead) {
  Write("input", "hehe <|endoftext|>");
  for (const auto format : {v1::DATA_FORMAT_NANOGPT, v1::DATA_FORMAT_LLMC}) {
    options_.format = format;
    ASSERT_TRUE(TokenizeFile(options_).ok());
    TokenSourceOptions source_options;
    source_options.data_root = folder_;
    source_options.path = "out.bin";
    source_options.format = format;
    source_options.vocab_size = 259;
    auto source = OpenTokenSource(source_options);
    ASSERT_TRUE(source.ok()) << source.status();
    std::vector<int32_t> tokens((*source)->num_tokens());
    (*source)->Read(0, absl::MakeSpan(tokens));
    EXPECT_EQ(tokens, Encode("hehe <|endoftext|>"));
  }
}

// 65279 more tokens make the vocabulary too large for uint16; only ids that occur matter.
TEST_F(TokenizeTest, IdsBeyondUint16AreNamedOrTakeFourBytes) {
  std::string more;
  for (int id = 259; id < 65540; ++id) absl::StrAppend(&more, ", \"x", id, "\": ", id);
  WriteTokenizer(absl::StrCat(more, ", \"qq\": 65540"));
  Write("merges.txt", "h e\n\u0120 he\nq q\n");
  Write("input", "hehe");
  EXPECT_TRUE(TokenizeFile(options_).ok());
  const std::string before = ReadAll(options_.output);
  Write("input", "heqq");
  EXPECT_EQ(TokenizeFile(options_).status(),
            absl::OutOfRangeError(options_.output +
                                  ": token 1: id 65540 is above 65535, the largest of the format"));
  // What had the name stays, and nothing else is left.
  EXPECT_EQ(ReadAll(options_.output), before);
  EXPECT_EQ(Outputs(), std::vector<std::string>{"out.bin"});

  options_.format = v1::DATA_FORMAT_LLMC;
  ASSERT_TRUE(TokenizeFile(options_).ok());
  const std::string bytes = ReadAll(options_.output);
  ASSERT_EQ(bytes.size(), 1024u + 8);
  int32_t words[3];
  std::memcpy(words, bytes.data(), sizeof(words));
  EXPECT_EQ(words[0], 20240801);
  EXPECT_EQ(words[1], 7);
  EXPECT_EQ(words[2], 2);
}

TEST_F(TokenizeTest, NamesWhatItRefusesAndLeavesNothing) {
  struct Case {
    const char* name;
    std::function<void(TokenizeOptions&)> change;
    absl::StatusCode code;
    std::string message;
  };
  const std::string input = folder_ + "/input";
  const Case cases[] = {
      {"tokenizer", [](auto& o) { o.tokenizer += "/no"; }, absl::StatusCode::kNotFound,
       "--tokenizer: " + folder_ + "/no: no such file"},
      {"input", [](auto& o) { o.input += ".no"; }, absl::StatusCode::kNotFound,
       "--input: " + input + ".no: no such file"},
      {"line", [](auto& o) { o.input_format.json_lines = true; },
       absl::StatusCode::kInvalidArgument,
       "--input: " + input + ": line 1 (byte 0): JSON at byte "},
      {"output", [](auto& o) { o.output = o.tokenizer + "/no/out.bin"; },
       absl::StatusCode::kNotFound, "/no/out.bin.tmp-"},
      {"device", [](auto& o) { o.output = "/dev/null"; }, absl::StatusCode::kInvalidArgument,
       "/dev/null: exists and is not a regular file"},
      {"format", [](auto& o) { o.format = v1::DATA_FORMAT_TEXT; },
       absl::StatusCode::kInvalidArgument, "must be nanogpt or llmc"},
      {"split", [](auto& o) { o.split = 1.0; }, absl::StatusCode::kInvalidArgument,
       "--split: 1: must be above 0 and below 1"},
      {"split_nan", [](auto& o) { o.split = std::nan(""); }, absl::StatusCode::kInvalidArgument,
       "--split: nan"},
      {"split_empty", [](auto& o) { o.split = 0.01; }, absl::StatusCode::kInvalidArgument,
       "--split: 0.01: leaves nothing on one side"},
  };
  Write("input", "hehe");
  for (const Case& c : cases) {
    TokenizeOptions options = options_;
    c.change(options);
    const absl::Status status = TokenizeFile(options).status();
    EXPECT_EQ(status.code(), c.code) << c.name << " " << status;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
    EXPECT_EQ(Outputs(), std::vector<std::string>{});
  }
  std::filesystem::remove(folder_ + "/merges.txt");
  Write("tokenizer.json", ReadAll(folder_ + "/vocab.json"));
  EXPECT_EQ(TokenizeFile(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

// karpathy/nanoGPT, data/shakespeare/prepare.py, byte for byte.
TEST_F(TokenizeTest, WritesNanoGptsShakespeare) {
  const std::filesystem::path folder = SharedDataPath("tinyshakespeare");
  options_.tokenizer = SharedDataPath("tokenizers/gpt2").string();
  TESSERA_SKIP_WITHOUT(folder);
  TESSERA_SKIP_WITHOUT(options_.tokenizer);
  options_.input = (folder / "input.txt").string();
  options_.split = 0.9;
  ASSERT_TRUE(TokenizeFile(options_).ok());
  EXPECT_TRUE(ReadAll(folder_ + "/out_train.bin") == ReadAll(folder / "nanogpt_gpt2bpe_train.bin"));
  EXPECT_TRUE(ReadAll(folder_ + "/out_val.bin") == ReadAll(folder / "nanogpt_gpt2bpe_val.bin"));
}

}  // namespace
}  // namespace tessera
