// Token files, sound and malformed: every refusal names the field, the file and what is wrong
// where.
#include "worker/data/token_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "worker/data/token_source_testing.h"

namespace tessera {
namespace {

std::string Words(std::initializer_list<int32_t> words, size_t header_bytes = 1024) {
  std::string bytes(header_bytes, '\0');
  size_t i = 0;
  for (int32_t word : words) {
    std::memcpy(bytes.data() + 4 * i++, &word, 4);
  }
  return bytes;
}

std::string Shorts(std::initializer_list<uint16_t> items) {
  std::string bytes;
  for (uint16_t item : items) bytes.append(reinterpret_cast<const char*>(&item), 2);
  return bytes;
}

TEST_F(TokenSourceTest, ReadsFilesOfTokens) {
  Write("a.txt", "abc");
  Write("a.bin", Shorts({5, 50256, 7}));
  Write("l.bin", Words({20240520, 1, 3}) + Shorts({5, 50256, 7}));
  Write("l3.bin", Words({20240801, 7, 2}) + std::string("\x01\0\x01\0\x02\0\0\0", 8));
  struct Case {
    const char* file;
    v1::DataFormat format;
    int32_t vocab_size;
    std::vector<int32_t> tokens;
  };
  const Case cases[] = {{"a.txt", v1::DATA_FORMAT_TEXT, 256, {'a', 'b', 'c'}},
                        {"a.bin", v1::DATA_FORMAT_NANOGPT, 50257, {5, 50256, 7}},
                        {"l.bin", v1::DATA_FORMAT_LLMC, 50257, {5, 50256, 7}},
                        {"l3.bin", v1::DATA_FORMAT_LLMC, 128256, {65537, 2}}};
  for (const Case& c : cases) {
    auto source = Open(c.file, c.format, c.vocab_size);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(AllTokens(**source), c.tokens) << c.file;
  }
}

TEST_F(TokenSourceTest, MalformedFilesAreRefusedByName) {
  using F = v1::DataFormat;
  const std::string header = Words({20240520, 1, 3});
  struct Case {
    const char* name;
    std::string bytes;
    F format;
    int32_t vocab_size;
    const char* part;  // of the message
  };
  const Case cases[] = {
      {"empty_text", "", v1::DATA_FORMAT_TEXT, 256, "is empty"},
      {"empty_nanogpt", "", v1::DATA_FORMAT_NANOGPT, 256, "is empty"},
      {"one_byte_text", "a", v1::DATA_FORMAT_TEXT, 256, "has 1 tokens, fewer than the 2"},
      {"odd_nanogpt", "abc", v1::DATA_FORMAT_NANOGPT, 50257, "3 bytes"},
      {"short_nanogpt", "ab", v1::DATA_FORMAT_NANOGPT, 50257, "has 1 tokens"},
      {"id_nanogpt", Shorts({1, 2, 50257}), v1::DATA_FORMAT_NANOGPT, 50257,
       "token 2 (byte 4) is 50257"},
      {"id_text", "ab\xff", v1::DATA_FORMAT_TEXT, 128, "token 2 (byte 2) is 255"},
      {"llmc_truncated_header", header.substr(0, 1000), v1::DATA_FORMAT_LLMC, 50257, "1000 bytes"},
      {"llmc_magic", Words({20240519, 1, 1}) + Shorts({1}), v1::DATA_FORMAT_LLMC, 50257,
       "magic at byte 0 is 20240519"},
      {"llmc_version", Words({20240520, 2, 1}) + Shorts({1}), v1::DATA_FORMAT_LLMC, 50257,
       "version at byte 4 is 2"},
      {"llmc_llama_version", Words({20240801, 1, 1}) + Shorts({1, 0}), v1::DATA_FORMAT_LLMC, 50257,
       "version at byte 4 is 1, not 7"},
      {"llmc_truncated", header + Shorts({1, 2}), v1::DATA_FORMAT_LLMC, 50257,
       "asks for 1030 bytes, but the file has 1028"},
      {"llmc_trailing", header + Shorts({1, 2, 3, 4}), v1::DATA_FORMAT_LLMC, 50257, "1032"},
      {"llmc_negative", Words({20240520, 1, -1}), v1::DATA_FORMAT_LLMC, 50257, "is -1"},
      {"llmc_huge_count", Words({20240520, 1, 0x7fffffff}) + Shorts({1}), v1::DATA_FORMAT_LLMC,
       50257, "token count at byte 8"},
      {"llmc_no_tokens", Words({20240520, 1, 0}), v1::DATA_FORMAT_LLMC, 50257, "has 0 tokens"},
      {"llmc_id", header + Shorts({1, 60000, 3}), v1::DATA_FORMAT_LLMC, 50257,
       "token 1 (byte 1026) is 60000"},
      {"llmc_llama_id", Words({20240801, 7, 2}) + std::string("\0\0\0\0\xff\xff\xff\xff", 8),
       v1::DATA_FORMAT_LLMC, 128256, "token 1 (byte 1028) is 4294967295"},
      {"text_as_llmc", std::string(5000, 'x'), v1::DATA_FORMAT_LLMC, 50257, "magic"},
  };
  for (const Case& c : cases) {
    Write(c.name, c.bytes);
    const absl::Status status = Open(c.name, c.format, c.vocab_size).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_EQ(FieldOf(status), "spec.data.path") << c.name;
    for (absl::string_view part : {absl::string_view(c.name), absl::string_view(c.part)}) {
      EXPECT_NE(status.message().find(part), absl::string_view::npos) << status << " / " << part;
    }
  }
}

TEST_F(TokenSourceTest, ReadsJsonLinesAsBytes) {
  Write("a.jsonl", "{\"text\": \"ab\", \"id\": 1}\r\n{\"text\": \"\"}\n{\"text\": \"\\u00e9\"}");
  auto source = Open("a.jsonl", v1::DATA_FORMAT_JSONL, 256);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(AllTokens(**source), (std::vector<int32_t>{'a', 'b', 0xc3, 0xa9}));
}

TEST_F(TokenSourceTest, RefusesLinesThatAreNoDocuments) {
  struct Case {
    const char* lines;
    const char* message;
  };
  const Case cases[] = {
      {"{\"text\": \"ab\"}\n\n{\"text\": \"c\"}\n", "line 2 (byte 15): is empty"},
      {"{\"text\": \"ab\"}\n{\"body\": \"c\"}\n", "line 2 (byte 15): text: required"},
      {"{\"text\": null}\n", "line 1 (byte 0): text: null: required"},
      {"{\"text\": 5}\n", "line 1 (byte 0): text: 5: must be a string"},
      {"{\"text\": \"a\", \"text\": \"b\"}\n", "line 1 (byte 0): duplicate key 'text'"},
      {"[\"text\"]\n", "line 1 (byte 0): (root): an array: must be an object"},
      {"{\"text\": \"ab\"} {\"text\": \"ab\"}\n", "line 1 (byte 0): JSON at byte "},
      {"{\"text\": \"a\nb\"}\n", "line 1 (byte 0): JSON at byte "},
      {"{\"text\": \"\xff\"}\n", "line 1 (byte 0): JSON at byte "},
      {"{\"text\": \"a\"}\n", "has 1 tokens, fewer than the 2"},
      {"{\"text\": \"ab\xc3\xa9\"}\n", "token 2 of its encoding is 195, not below"},
  };
  for (const Case& c : cases) {
    Write("a.jsonl", c.lines);
    const absl::Status status = Open("a.jsonl", v1::DATA_FORMAT_JSONL, 128).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.lines;
    EXPECT_EQ(FieldOf(status), "spec.data.path");
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos)
        << status << " / " << c.message;
  }
}

// GPT-2's kind of files: all bytes, "he" (256) and <|endoftext|> (257).
TEST_F(TokenSourceTest, LateBadIdIsFoundAtItsPosition) {
  std::string bytes(3 * 100001, 'a');
  bytes.back() = '\x80';
  Write("late", bytes);
  const absl::Status status = Open("late", v1::DATA_FORMAT_TEXT, 128).status();
  EXPECT_NE(status.message().find("token 300002 (byte 300002) is 128"), absl::string_view::npos)
      << status;
}

TEST_F(TokenSourceTest, PathsStayInsideTheDataRoot) {
  std::filesystem::create_directory(root_ + "/inside");
  Write("inside/ok.txt", "hello");
  ASSERT_EQ(symlink("/etc/hostname", (root_ + "/escape").c_str()), 0);
  ASSERT_EQ(symlink("inside/ok.txt", (root_ + "/fine").c_str()), 0);
  EXPECT_TRUE(Open("fine", v1::DATA_FORMAT_TEXT).ok());
  EXPECT_TRUE(Open("inside/ok.txt", v1::DATA_FORMAT_TEXT).ok());
  for (const char* path : {"/etc/hostname", "../x", "inside/../../x", "escape", ""}) {
    const absl::Status status = Open(path, v1::DATA_FORMAT_TEXT).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path << " " << status;
    EXPECT_EQ(FieldOf(status), "spec.data.path");
  }
}

TEST_F(TokenSourceTest, MissingFilesFoldersAndPipes) {
  EXPECT_EQ(Open("none", v1::DATA_FORMAT_TEXT).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open(".", v1::DATA_FORMAT_TEXT).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(Open("pipe", v1::DATA_FORMAT_TEXT).status().code(), absl::StatusCode::kInvalidArgument);
  root_ = "/no/such/root";
  EXPECT_EQ(Open("a", v1::DATA_FORMAT_TEXT).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tessera
