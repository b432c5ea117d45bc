// GPT-2's own vocabulary: others' encodings of the same texts. Skipped where the vocabulary is not.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "storage/utf8.h"
#include "worker/data/shared_data.h"
#include "worker/data/text_encoder.h"
#include "worker/data/tokenizer_files.h"

namespace tessera {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::unique_ptr<Tokenizer> LoadGpt2() {
  absl::StatusOr<TokenizerFiles> files =
      FindTokenizerFiles(SharedDataPath("tokenizers/gpt2").string());
  EXPECT_TRUE(files.ok()) << files.status();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(*files);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// ggml-org/llama.cpp, models/ggml-vocab-gpt-2.gguf.{inp,out}: texts and their ids.
TEST(Gpt2Tokenizer, EncodesAsLlamaCppsVectors) {
  const std::filesystem::path folder = SharedDataPath("tokenizers/gpt2");
  TESSERA_SKIP_WITHOUT(folder);
  const auto tokenizer = LoadGpt2();
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  TextEncoder encoder(*tokenizer, SpecialTokens::kAsText);
  const std::string inputs = ReadAll(folder / "vectors.inp");
  const std::string outputs = ReadAll(folder / "vectors.out");
  const std::vector<std::string> texts = absl::StrSplit(inputs, "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = absl::StrSplit(outputs, '\n');
  ASSERT_GE(texts.size(), 45u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int32_t> expected;
    for (absl::string_view word : absl::StrSplit(lines[i], ' ', absl::SkipEmpty())) {
      ASSERT_TRUE(absl::SimpleAtoi(word, &expected.emplace_back()));
    }
    absl::StatusOr<std::vector<int32_t>> ids = encoder.Encode(texts[i]);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, expected) << i << ": " << texts[i];
    EXPECT_EQ(*tokenizer->Decode(*ids), texts[i]);
  }
}

std::vector<int32_t> ReadUint16(const std::filesystem::path& path) {
  const std::string bytes = ReadAll(path);
  std::vector<int32_t> ids(bytes.size() / 2);
  for (size_t i = 0; i < ids.size(); ++i) {
    uint16_t id = 0;
    std::memcpy(&id, bytes.data() + 2 * i, 2);
    ids[i] = id;
  }
  return ids;
}

// karpathy/nanoGPT, data/shakespeare/prepare.py: the first 90 % of the characters and the rest,
// encoded by tiktoken.
TEST(Gpt2Tokenizer, EncodesShakespeareAsNanoGpt) {
  const std::filesystem::path folder = SharedDataPath("tinyshakespeare");
  TESSERA_SKIP_WITHOUT(folder);
  TESSERA_SKIP_WITHOUT(SharedDataPath("tokenizers/gpt2"));
  const auto tokenizer = LoadGpt2();
  const std::string text = ReadAll(folder / "input.txt");
  const auto train_chars = static_cast<int64_t>(static_cast<double>(CountUtf8Chars(text)) * 0.9);
  const size_t split = Utf8CharBegin(text, train_chars);
  TextEncoder encoder(*tokenizer, SpecialTokens::kAsText);
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<std::vector<int32_t>> train = encoder.Encode(text.substr(0, split));
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  absl::StatusOr<std::vector<int32_t>> validation = encoder.Encode(text.substr(split));
  ASSERT_TRUE(train.ok() && validation.ok());
  EXPECT_TRUE(*train == ReadUint16(folder / "nanogpt_gpt2bpe_train.bin"));
  EXPECT_TRUE(*validation == ReadUint16(folder / "nanogpt_gpt2bpe_val.bin"));
  EXPECT_EQ(*tokenizer->Decode(*train), text.substr(0, split));
  RecordProperty("encoded_mb_per_second",
                 std::to_string(static_cast<double>(split) / 1e6 / time.count()));
}

}  // namespace
}  // namespace tessera
