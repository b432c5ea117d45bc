#include "worker/checkpoint/llmc_checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "storage/output_file.h"
#include "worker/checkpoint/weights_testing.h"

namespace tessera {
namespace {

constexpr int64_t kV = 131, kVp = 256, kT = 7, kL = 2, kC = 12;

void SetWord(std::string& file, int word, int32_t value) {
  std::memcpy(file.data() + 4 * word, &value, 4);
}

float At(const std::string& file, int64_t element) {
  float value;
  std::memcpy(&value, file.data() + 1024 + 4 * element, 4);
  return value;
}

std::string Written(DType dtype) {
  const std::string path = FreshFolder() + "/model.bin";
  const absl::Status status = WriteLlmcCheckpoint(path, SmallGpt2().model, dtype, MadeUpSource());
  EXPECT_TRUE(status.ok()) << status;
  return path;
}

TEST(LlmcCheckpoint, ThereAndBack) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::string path = Written(dtype);
    const auto reader = OpenWeights(path);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->config(), SmallGpt2());
    ExpectMadeUpWeights(**reader);
  }
}

// The bytes that train_gpt2.py's write_model puts down, counted by hand.
TEST(LlmcCheckpoint, LaysOutAsLlmcDoes) {
  const std::string file = ReadFile(Written(DType::kFloat32));
  int32_t header[256];
  std::memcpy(header, file.data(), sizeof header);
  const int32_t kHeader[] = {20240326, 3, kT, kV, kL, 3, kC, kVp};
  for (int i = 0; i < 256; ++i) EXPECT_EQ(header[i], i < 8 ? kHeader[i] : 0) << i;
  EXPECT_EQ(At(file, 5), MadeUpValue("wte.weight", 5));
  for (int64_t i = kV * kC; i < kVp * kC; ++i) ASSERT_EQ(At(file, i), 0) << i;
  int64_t at = kVp * kC;
  EXPECT_EQ(At(file, at + 3), MadeUpValue("wpe.weight", 3));
  at += kT * kC;
  EXPECT_EQ(At(file, at + kC), MadeUpValue("h.1.ln_1.weight", 0));
  at += 2 * kL * kC;  // ln1w, ln1b
  // qkvw (L, 3C, C): (layer 1, out 20, in 7), which is (7, 20) of the (C, 3C) matrix here.
  EXPECT_EQ(At(file, at + 3 * kC * kC + 20 * kC + 7),
            MadeUpValue("h.1.attn.c_attn.weight", 7 * 3 * kC + 20));
  at += kL * (3 * kC * kC + 3 * kC);
  EXPECT_EQ(At(file, at + 1), MadeUpValue("h.0.attn.c_proj.weight", kC));
  at += kL * (kC * kC + kC) + 2 * kL * kC;  // attprojw, attprojb, ln2w, ln2b
  EXPECT_EQ(At(file, at + 40 * kC + 2), MadeUpValue("h.0.mlp.c_fc.weight", 2 * 4 * kC + 40));
  at += kL * (4 * kC * kC + 4 * kC);
  // fcprojw (L, C, 4C).
  EXPECT_EQ(At(file, at + 4 * kC * kC + 5 * 4 * kC + 30),
            MadeUpValue("h.1.mlp.c_proj.weight", 30 * kC + 5));
  at += kL * (4 * kC * kC + kC);
  EXPECT_EQ(At(file, at), MadeUpValue("ln_f.weight", 0));
  EXPECT_EQ(At(file, at + 2 * kC - 1), MadeUpValue("ln_f.bias", kC - 1));
  EXPECT_EQ(static_cast<int64_t>(file.size()), 1024 + 4 * (at + 2 * kC));
}

TEST(LlmcCheckpoint, RefusesNamingFileAndWord) {
  const std::string sound = ReadFile(Written(DType::kFloat32));
  const struct {
    const char* name;
    std::function<void(std::string&)> change;
    const char* said;
  } kCases[] = {
      {"short", [](std::string& f) { f.resize(1023); }, "1023 bytes, fewer than the 1024"},
      {"version", [](std::string& f) { SetWord(f, 1, 4); }, "word 1 (version) is 4"},
      {"context", [](std::string& f) { SetWord(f, 2, 0); }, "word 2 (maxT) is 0"},
      {"vocab", [](std::string& f) { SetWord(f, 3, -1); }, "word 3 (vocab_size) is -1"},
      {"layers", [](std::string& f) { SetWord(f, 4, 1 << 20); }, "layers"},
      {"layers_other", [](std::string& f) { SetWord(f, 4, 3); }, "its header asks for"},
      {"heads", [](std::string& f) { SetWord(f, 5, 5); }, "heads: 5: must divide hidden_size"},
      {"channels", [](std::string& f) { SetWord(f, 6, INT32_MAX); }, "word 6 (channels)"},
      {"padded", [](std::string& f) { SetWord(f, 7, 131); }, "word 7 (padded_vocab_size) is 131"},
      {"padded_more", [](std::string& f) { SetWord(f, 7, 384); }, "must be 256"},
      {"longer", [](std::string& f) { f += '\0'; }, "its header asks for"},
      {"shorter", [](std::string& f) { f.pop_back(); }, "its header asks for"},
      {"header_only", [](std::string& f) { f.resize(1024); }, "has 1024 bytes"},
      {"beyond_63_bits",
       [](std::string& f) {
         SetWord(f, 4, 16384);
         SetWord(f, 6, 3 << 26);
       },
       "more than 2^63"},
      {"padding", [](std::string& f) { f[1024 + 4 * (kVp * kC - 1)] = 1; },
       "row 255, which pads the vocabulary"},
      {"first_pad_row", [](std::string& f) { f[1024 + 4 * kV * kC] = 1; }, "row 131"},
  };
  for (const auto& c : kCases) {
    std::string file = sound;
    c.change(file);
    const std::string path = FreshFolder() + "/f.bin";
    ASSERT_TRUE(WriteWholeFile(path, file).ok());
    const absl::Status status = OpenWeights(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name << ": " << status;
    EXPECT_EQ(status.message().find(path), 0u) << c.name << ": " << status;
    EXPECT_NE(status.message().find(c.said), absl::string_view::npos) << c.name << ": " << status;
  }
  std::string other = sound;
  SetWord(other, 0, 20240327);
  const std::string path = FreshFolder() + "/f.bin";
  ASSERT_TRUE(WriteWholeFile(path, other).ok());
  EXPECT_NE(OpenLlmcCheckpoint(path).status().message().find("word 0 (magic)"),
            absl::string_view::npos);
}

TEST(LlmcCheckpoint, RefusesToWriteWhatTheFormatCannotSay) {
  const struct {
    const char* name;
    std::function<void(ModelConfig&)> change;
    DType dtype = DType::kFloat32;
  } kCases[] = {
      {"family", [](ModelConfig& c) { c = SmallLlama().model; }},
      {"tie_word_embeddings", [](ModelConfig& c) { c.tie_word_embeddings = false; }},
      {"intermediate_size", [](ModelConfig& c) { c.intermediate_size = 47; }},
      {"norm_epsilon", [](ModelConfig& c) { c.norm_epsilon = 1e-6f; }},
      {"dtype", [](ModelConfig&) {}, DType::kFloat16},
      {"heads", [](ModelConfig& c) { c.heads = c.kv_heads = 5; }},
  };
  for (const auto& c : kCases) {
    ModelConfig config = SmallGpt2().model;
    c.change(config);
    const std::string path = FreshFolder() + "/f.bin";
    const absl::Status status = WriteLlmcCheckpoint(path, config, c.dtype, MadeUpSource());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name << ": " << status;
    if (std::string(c.name) == "family") continue;  // the Llama is untied as well
    EXPECT_NE(status.message().find(c.name), absl::string_view::npos) << status;
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

}  // namespace
}  // namespace tessera
