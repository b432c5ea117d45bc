// Token files, sound and malformed: every refusal names the field, the file and what is wrong
// where.
#include "worker/data/token_source.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "worker/data/byte_level.h"

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

class TokenSourceTest : public testing::Test {
 protected:
  TokenSourceTest() {
    root_ = testing::TempDir() + "/dataXXXXXX";
    if (mkdtemp(root_.data()) == nullptr) abort();
  }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(root_ + "/" + name, std::ios::binary) << bytes;
  }
  absl::StatusOr<std::unique_ptr<TokenSource>> Open(const std::string& path, v1::DataFormat format,
                                                    int32_t vocab_size = 50257,
                                                    int64_t min_tokens = 2) {
    TokenSourceOptions options;
    options.data_root = root_;
    options.path = path;
    options.format = format;
    options.vocab_size = vocab_size;
    options.min_tokens = min_tokens;
    options.field = "spec.data.path";
    return OpenTokenSource(options);
  }
  std::string root_;
};

std::vector<int32_t> AllTokens(const TokenSource& source) {
  std::vector<int32_t> tokens(source.num_tokens());
  source.Read(0, absl::MakeSpan(tokens));
  return tokens;
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

template <typename Item>
std::string Items(std::initializer_list<Item> items) {
  std::string bytes;
  for (const Item item : items) bytes.append(reinterpret_cast<const char*>(&item), sizeof(item));
  return bytes;
}

// An index of sequences of these lengths, two documents.
std::string MegatronIndex(uint8_t dtype, int64_t item_size, const std::vector<int32_t>& lengths) {
  std::string bytes = std::string("MMIDIDX\0\0", 9) + Items<uint64_t>({1}) +
                      static_cast<char>(dtype) + Items<uint64_t>({lengths.size(), 3});
  int64_t pointer = 0;
  std::string pointers;
  for (const int32_t length : lengths) {
    bytes += Items<int32_t>({length});
    pointers += Items<int64_t>({pointer});
    pointer += length * item_size;
  }
  const auto sequences = static_cast<int64_t>(lengths.size());
  return bytes + pointers + Items<int64_t>({0, 1, sequences});
}

TEST_F(TokenSourceTest, ReadsMegatronsIntegerTypes) {
  struct Case {
    uint8_t dtype;
    int64_t item_size;
    std::string bytes;
  };
  const Case cases[] = {{1, 1, Items<uint8_t>({1, 2, 127})}, {2, 1, Items<int8_t>({1, 2, 127})},
                        {3, 2, Items<int16_t>({1, 2, 127})}, {4, 4, Items<int32_t>({1, 2, 127})},
                        {5, 8, Items<int64_t>({1, 2, 127})}, {8, 2, Items<uint16_t>({1, 2, 127})}};
  for (const Case& c : cases) {
    for (const char* modes : {"", "00"}) {
      const std::string mode_bytes = *modes == 0 ? std::string() : std::string(2, 0);
      Write("m.idx", MegatronIndex(c.dtype, c.item_size, {1, 2}) + mode_bytes);
      Write("m.bin", c.bytes);
      auto source = Open("m", v1::DATA_FORMAT_MEGATRON, 128);
      ASSERT_TRUE(source.ok()) << source.status();
      EXPECT_EQ(AllTokens(**source), (std::vector<int32_t>{1, 2, 127})) << int{c.dtype};
    }
  }
}

// One change of a sound index each; the message names the field and its byte.
TEST_F(TokenSourceTest, RefusesEveryFlawOfAMegatronIndex) {
  const std::string sound = MegatronIndex(8, 2, {1, 2});  // 34 + 2*4 + 2*8 + 3*8 = 82 bytes
  ASSERT_EQ(sound.size(), 82u);
  const auto with = [&](size_t at, const std::string& bytes) {
    return std::string(sound).replace(at, bytes.size(), bytes);
  };
  struct Case {
    std::string index;
    const char* message;
  };
  const Case cases[] = {
      {sound.substr(0, 33), "index: has 33 bytes, fewer than the 34 of its header"},
      {with(0, "X"), "index: does not begin with MMIDIDX"},
      {with(8, "\x01"), "index: does not begin with MMIDIDX"},
      {with(9, "\x02"), "version at byte 9 is 2, not 1"},
      {with(17, "\x06"), "dtype code at byte 17 is 6, a floating-point type"},
      {with(17, "\x07"), "dtype code at byte 17 is 7, a floating-point type"},
      {with(17, std::string(1, 0)), "dtype code at byte 17 is 0, not 1 .. 5 or 8"},
      {with(17, "\x09"), "dtype code at byte 17 is 9"},
      {with(18, Items<uint64_t>({~uint64_t{0}})),
       "number of sequences at byte 18 is 18446744073709551615, more than fit"},
      {with(18, Items<uint64_t>({uint64_t{1} << 62})), "number of sequences at byte 18"},
      {with(18, Items<uint64_t>({3})),
       "3 sequences and 3 document entries ask for 94 bytes, or 97 with modes, but the file has "
       "82"},
      {with(26, Items<uint64_t>({~uint64_t{0}})),
       "length of the document index at byte 26 is 18446744073709551615, more than fits"},
      {with(26, Items<uint64_t>({0})),
       "length of the document index at byte 26 is 0, not at least 1"},
      {sound + std::string(1, 0), "but the file has 83"},
      {sound.substr(0, 81), "but the file has 81"},
      {with(34, Items<int32_t>({-1})), "length of sequence 0 at byte 34 is -1, less than 0"},
      {with(34, Items<int32_t>({4})),
       "length of sequence 0 at byte 34 is 4, which ends at byte 8 of a .bin of 6"},
      {with(38, Items<int32_t>({1})), "the sequences end at byte 4, but the .bin has 6"},
      {with(42, Items<int64_t>({2})), "pointer of sequence 0 at byte 42 is 2, not 0"},
      {with(50, Items<int64_t>({-2})), "pointer of sequence 1 at byte 50 is -2, not 2"},
      {with(58, Items<int64_t>({1})), "document entry 0 at byte 58 is 1, not 0"},
      {with(66, Items<int64_t>({-1})),
       "document entry 1 at byte 66 is -1, less than the one before"},
      {with(66, Items<int64_t>({3})), "document entry 2 at byte 74 is 2, less than the one before"},
      {with(74, Items<int64_t>({3})),
       "document entry 2 at byte 74 is 3, not 2, the number of sequences"},
      {sound + std::string("\0\x01", 2), "mode of sequence 1 at byte 83 is 1, not 0"},
  };
  Write("m.bin", Shorts({1, 2, 3}));
  for (const Case& c : cases) {
    Write("m.idx", c.index);
    const absl::Status status = Open("m", v1::DATA_FORMAT_MEGATRON).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message << status;
    EXPECT_EQ(FieldOf(status), "spec.data.path");
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos)
        << status << " / " << c.message;
  }
}

TEST_F(TokenSourceTest, MegatronIdsAndFilesAreNamed) {
  Write("m.idx", MegatronIndex(4, 4, {1, 2}));
  EXPECT_EQ(Open("m", v1::DATA_FORMAT_MEGATRON).status().message(),
            "spec.data.path: m.bin: no such file");
  for (const int32_t id : {-5, 50257}) {
    Write("m.bin", Items<int32_t>({1, 2, id}));
    EXPECT_EQ(Open("m", v1::DATA_FORMAT_MEGATRON).status().message(),
              absl::StrCat("spec.data.path: m.bin: token 2 (byte 8) is ", id,
                           ", not below spec.model.vocab_size (50257)"));
  }
  std::filesystem::remove(root_ + "/m.idx");
  EXPECT_EQ(Open("m", v1::DATA_FORMAT_MEGATRON).status().message(),
            "spec.data.path: m.idx: no such file");
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
class JobDataTest : public TokenSourceTest {
 protected:
  JobDataTest() {
    std::filesystem::create_directory(root_ + "/tokenizer");
    std::string vocabulary = "{\"he\": 256, \"<|endoftext|>\": 257";
    for (int byte = 0; byte < 256; ++byte) {
      std::string token = TokenOfBytes(std::string(1, static_cast<char>(byte)));
      if (token == "\"" || token == "\\") token.insert(0, "\\");
      absl::StrAppend(&vocabulary, ", \"", token, "\": ", byte);
    }
    Write("tokenizer/vocab.json", vocabulary + "}");
    Write("tokenizer/merges.txt", "#version: 0.2\nh e\n");
    spec_.mutable_model()->set_vocab_size(258);
    spec_.mutable_data()->set_path("train");
    spec_.mutable_data()->set_validation_path("validation");
    spec_.mutable_data()->set_tokenizer("tokenizer");
    spec_.mutable_data()->set_sequence_length(2);
    spec_.mutable_evaluation()->set_every_steps(1);
  }
  v1::TrainingJobSpec spec_;
};

TEST_F(JobDataTest, EncodesTextAndJsonLines) {
  Write("train", "hehe<|endoftext|>");
  Write("validation", "abc");
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  absl::StatusOr<JobData> data = OpenJobData(spec_, root_);
  ASSERT_TRUE(data.ok()) << data.status();
  // The end of text is text where it is written out.
  EXPECT_EQ((*data).train->num_tokens(), 15);
  EXPECT_EQ(AllTokens(*data->train)[1], 256);
  EXPECT_EQ(AllTokens(*data->validation), (std::vector<int32_t>{'a', 'b', 'c'}));

  Write("train", "{\"body\": \"he\"}\n{\"body\": \"x\"}\n");
  Write("validation", "{\"body\": \"\"}\n{\"body\": \"he\"}\n");
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_JSONL);
  spec_.mutable_data()->set_text_field("body");
  data = OpenJobData(spec_, root_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(AllTokens(*data->train), (std::vector<int32_t>{256, 257, 'x', 257}));
  EXPECT_EQ(AllTokens(*data->validation), (std::vector<int32_t>{257, 256, 257}));
  std::vector<int32_t> part(2);
  data->train->Read(1, absl::MakeSpan(part));
  EXPECT_EQ(part, (std::vector<int32_t>{257, 'x'}));
  EXPECT_TRUE(CheckJobData(spec_, root_).ok());
}

TEST_F(JobDataTest, NamesTheFieldThatIsWrong) {
  Write("train", "hehe");
  Write("validation", "abc");
  Write("outside.json", "{}");
  std::filesystem::create_directory(root_ + "/links");
  ASSERT_EQ(symlink("/etc/hostname", (root_ + "/links/tokenizer.json").c_str()), 0);
  struct Case {
    const char* name;
    std::function<void(v1::TrainingJobSpec&)> change;
    const char* field;
    absl::StatusCode code;
    const char* message;
  };
  const Case cases[] = {
      {"vocabulary", [](auto& s) { s.mutable_model()->set_vocab_size(256); }, "spec.data.path",
       absl::StatusCode::kInvalidArgument, "train: token 0 of its encoding is 256, not below"},
      {"validation", [](auto& s) { s.mutable_data()->set_sequence_length(3); }, "spec.data.path",
       absl::StatusCode::kInvalidArgument, "has 2 tokens, fewer than the 4"},
      {"missing", [](auto& s) { s.mutable_data()->set_tokenizer("no"); }, "spec.data.tokenizer",
       absl::StatusCode::kNotFound, "no such file"},
      {"outside", [](auto& s) { s.mutable_data()->set_tokenizer("../x"); }, "spec.data.tokenizer",
       absl::StatusCode::kInvalidArgument, "leaves the data root"},
      {"linked", [](auto& s) { s.mutable_data()->set_tokenizer("links"); }, "spec.data.tokenizer",
       absl::StatusCode::kInvalidArgument, "leaves the data root"},
      {"bad", [](auto& s) { s.mutable_data()->set_tokenizer("outside.json"); },
       "spec.data.tokenizer", absl::StatusCode::kInvalidArgument, "pre_tokenizer: required"},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = spec_;
    spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    spec.mutable_data()->set_sequence_length(1);
    c.change(spec);
    for (const absl::Status& status :
         {OpenJobData(spec, root_).status(), CheckJobData(spec, root_)}) {
      EXPECT_EQ(status.code(), c.code) << c.name << " " << status;
      EXPECT_EQ(FieldOf(status).value_or(""), c.field) << c.name << " " << status;
      EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
    }
  }
}

TEST_F(JobDataTest, EncodingStopsWhenToldTo) {
  Write("train", std::string(1 << 20, 'a') + " he");
  Write("validation", "abc");
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  int asked = 0;
  const absl::Status status = OpenJobData(spec_, root_, [&] {
                                ++asked;
                                return absl::AbortedError("stop");
                              }).status();
  EXPECT_EQ(status, absl::AbortedError("stop"));
  EXPECT_EQ(asked, 1);
}

// A check looks at the beginning only; the run finds what is behind it.
TEST_F(JobDataTest, AChecksTimeIsBounded) {
  constexpr int64_t kLimit = 1000;
  std::string lines;
  const std::string line = "{\"text\": \"hello\"}\n";
  while (static_cast<int64_t>(lines.size()) <= kLimit) lines += line;
  Write("validation", line);
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_JSONL);
  Write("train", lines + "no JSON\n");
  EXPECT_TRUE(CheckJobData(spec_, root_, kLimit).ok());
  EXPECT_EQ(CheckJobData(spec_, root_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenJobData(spec_, root_).status().code(), absl::StatusCode::kInvalidArgument);
  Write("train", "no JSON\n" + lines);
  EXPECT_EQ(CheckJobData(spec_, root_, kLimit).code(), absl::StatusCode::kInvalidArgument);
}

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
