#include "worker/generation/text_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/data/byte_level.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TextCodecTest : public testing::Test {
 protected:
  TextCodecTest() {
    root_ = testing::TempDir() + "/codecXXXXXX";
    if (mkdtemp(root_.data()) == nullptr) abort();
    std::filesystem::create_directory(root_ + "/tokenizer");
    // Every byte under its own value, "ab" and the end of text.
    std::string vocabulary = "{\"ab\": 256, \"<|endoftext|>\": 257";
    for (int byte = 0; byte < 256; ++byte) {
      const std::string token = TokenOfBytes(std::string(1, static_cast<char>(byte)));
      const bool escaped = token == "\"" || token == "\\";
      vocabulary += absl::StrCat(", \"", escaped ? "\\" : "", token, "\": ", byte);
    }
    Write("tokenizer/vocab.json", vocabulary + "}");
    Write("tokenizer/merges.txt", "#version: 0.2\na b\n");
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/" + name) << text;
  }

  std::string root_;
};

TEST_F(TextCodecTest, BytesAreTheirOwnIds) {
  const TextCodec codec = TextCodec::Bytes();
  EXPECT_THAT(*codec.Encode("A\xff"), ElementsAre(65, 255));
  EXPECT_EQ(*codec.Decode({65, 255}), "A\xff");
  EXPECT_EQ(*codec.Decode({65, 256, 66}), "AB") << "an id beyond a byte has no text";
}

TEST_F(TextCodecTest, ATokenizerUnderTheDataRoot) {
  absl::StatusOr<TextCodec> codec = TextCodec::Open(root_, "tokenizer", "tokenizer");
  ASSERT_TRUE(codec.ok()) << codec.status();
  EXPECT_THAT(*codec->Encode("abba"), ElementsAre(256, 'b', 'a'));
  EXPECT_EQ(*codec->Decode({256, 'b', 'a'}), "abba");
  EXPECT_EQ(*codec->Decode({256, 258}), "ab") << "a vocabulary may be padded";
}

TEST_F(TextCodecTest, ErrorsNameTheField) {
  EXPECT_THAT(TextCodec::Open(root_, "../x", "tokenizer").status().ToString(),
              HasSubstr("INVALID_ARGUMENT: tokenizer: ../x: "));
  EXPECT_THAT(TextCodec::Open(root_, "nowhere", "tokenizer").status().ToString(),
              HasSubstr("NOT_FOUND: tokenizer: nowhere: "));
  Write("tokenizer/merges.txt", "#version: 0.2\na c\n");
  EXPECT_THAT(TextCodec::Open(root_, "tokenizer", "tokenizer").status().ToString(),
              HasSubstr("INVALID_ARGUMENT: tokenizer: tokenizer: "));
}

TEST_F(TextCodecTest, AFolderMayHaveNone) {
  absl::StatusOr<std::optional<TextCodec>> none = TextCodec::OpenFolder(root_);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  absl::StatusOr<std::optional<TextCodec>> codec = TextCodec::OpenFolder(root_ + "/tokenizer");
  ASSERT_TRUE(codec.ok() && codec->has_value()) << codec.status();
  EXPECT_THAT(*(*codec)->Encode("ab"), ElementsAre(256));
}

}  // namespace
}  // namespace tessera
