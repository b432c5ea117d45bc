// A job's files by its spec: text with a tokenizer, JSON lines, and what is wrong with which field.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "worker/data/byte_level.h"
#include "worker/data/token_source_testing.h"

namespace tessera {
namespace {

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

}  // namespace
}  // namespace tessera
