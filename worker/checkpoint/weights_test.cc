// Hugging Face directories, there and back, and what is refused of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "storage/output_file.h"
#include "storage/sharded_safetensors.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/checkpoint/weight_writer.h"
#include "worker/checkpoint/weights_testing.h"

namespace tessera {
namespace {

using enum DType;

TEST(HfFolder, ThereAndBack) {
  for (const HfConfig& config : {SmallGpt2(), SmallLlama(), SmallQwen2()}) {
    for (const DType dtype : {kFloat32, kBFloat16, kFloat16}) {
      for (const int64_t max_shard_bytes : {kDefaultMaxShardBytes, int64_t{2000}}) {
        const std::string folder = FreshFolder() + "/new/folder";
        const absl::Status written =
            WriteHfFolder(folder, config, {dtype, max_shard_bytes}, MadeUpSource());
        ASSERT_TRUE(written.ok()) << written;
        const auto reader = OpenWeights(folder);
        ASSERT_TRUE(reader.ok()) << reader.status();
        EXPECT_EQ((*reader)->config(), config);
        ExpectMadeUpWeights(**reader);
        EXPECT_EQ(std::filesystem::exists(folder + "/model.safetensors.index.json"),
                  max_shard_bytes == 2000);
      }
    }
  }
}

TEST(HfFolder, SingleFileWithItsConfigBeside) {
  const std::string folder = FreshFolder();
  ASSERT_TRUE(WriteHfFolder(folder, SmallLlama(), {}, MadeUpSource()).ok());
  std::filesystem::rename(folder + "/model.safetensors", folder + "/other.safetensors");
  const auto reader = OpenWeights(folder + "/other.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.status();
  ExpectMadeUpWeights(**reader);
  EXPECT_EQ(OpenWeights(folder).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(folder + "/config.json");
  const absl::Status without = OpenWeights(folder + "/other.safetensors").status();
  EXPECT_EQ(without.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(without.message().find(folder + "/config.json"), absl::string_view::npos) << without;
}

TEST(HfFolder, WritesNothingOverAModel) {
  const std::string folder = FreshFolder();
  ASSERT_TRUE(WriteHfFolder(folder, SmallGpt2(), {}, MadeUpSource()).ok());
  const std::string before = ReadFile(folder + "/model.safetensors");
  EXPECT_EQ(WriteHfFolder(folder, SmallLlama(), {}, MadeUpSource()).code(),
            absl::StatusCode::kAlreadyExists);
  std::filesystem::remove(folder + "/config.json");
  EXPECT_EQ(WriteHfFolder(folder, SmallLlama(), {}, MadeUpSource()).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(folder + "/model.safetensors"), before);
}

TEST(HfFolder, LeavesNothingBehindAfterAnError) {
  const std::string folder = FreshFolder();
  const ParameterSource failing = [](absl::string_view name, int64_t, absl::Span<float>) {
    return name == "h.1.mlp.c_fc.weight" ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_EQ(WriteHfFolder(folder, SmallGpt2(), {}, failing).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(WriteHfFolder(folder, SmallGpt2(), {kInt32}, MadeUpSource()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteHfFolder(folder, SmallGpt2(), {kFloat32, 0}, MadeUpSource()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteHfFolder("/proc/none/x", SmallGpt2(), {}, MadeUpSource()).code(),
            absl::StatusCode::kUnavailable);
}

// A finite weight never becomes infinite in a file; infinities and NaNs stay what they are.
TEST(HfFolder, RefusesWhatTheDTypeCannotHold) {
  const auto source_of = [](float special) -> ParameterSource {
    return [special](absl::string_view name, int64_t, absl::Span<float> values) {
      std::fill(values.begin(), values.end(), 1.0f);
      if (name == "ln_f.bias") values[3] = special;
      return absl::OkStatus();
    };
  };
  for (const auto& [dtype, value] : {std::pair{kFloat16, 65520.0f}, {kBFloat16, 3.4e38f}}) {
    const absl::Status status =
        WriteHfFolder(FreshFolder(), SmallGpt2(), {dtype}, source_of(-value));
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_NE(status.message().find("transformer.ln_f.bias"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("element 3"), absl::string_view::npos) << status;
  }
  for (const float value : {INFINITY, NAN}) {
    const std::string folder = FreshFolder();
    ASSERT_TRUE(WriteHfFolder(folder, SmallGpt2(), {kFloat16}, source_of(value)).ok());
    float read;
    ASSERT_TRUE((*OpenWeights(folder))->ReadParameter("ln_f.bias", 3, {&read, 1}).ok());
    EXPECT_EQ(std::isnan(read), std::isnan(value));
    EXPECT_EQ(std::isinf(read), std::isinf(value));
  }
}

// Rounded once, to the nearest: half a unit in the last place of 8 and 11 bits, as a share of the
// power of two above the value: 2^-9 and 2^-12. Below float16's smallest normal number, 2^-14, the
// unit is that of [2^-14, 2^-13).
TEST(HfFolder, RoundsOnce) {
  const ParameterSource source = [](absl::string_view, int64_t offset, absl::Span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(offset + i + 1));
    }
    return absl::OkStatus();
  };
  for (const auto& [dtype, bound] : {std::pair{kBFloat16, 0x1p-9}, {kFloat16, 0x1p-12}}) {
    const std::string folder = FreshFolder();
    ASSERT_TRUE(WriteHfFolder(folder, SmallGpt2(), {dtype}, source).ok());
    std::vector<float> values(131 * 12);
    ASSERT_TRUE(
        (*OpenWeights(folder))->ReadParameter("wte.weight", 0, absl::MakeSpan(values)).ok());
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float exact = std::sin(static_cast<float>(i + 1));
      const double power =
          std::max<double>(0x1p-13, std::exp2(std::floor(std::log2(std::abs(exact))) + 1));
      worst = std::max(worst, std::abs(values[i] - exact) / power);
    }
    EXPECT_LE(worst, bound);
    EXPECT_GT(worst, bound / 2);
  }
}

// A folder of tensors that a test may change before it is written.
struct Folder {
  struct Tensor {
    SafetensorsDType dtype;
    std::vector<uint64_t> shape;
    std::vector<uint8_t> bytes;
  };
  std::map<std::string, Tensor> tensors;
  std::string config;
};

Folder Load(const std::string& path) {
  Folder folder;
  folder.config = ReadFile(path + "/config.json");
  auto stored = ShardedSafetensors::OpenFolder(path);
  for (const auto& [name, entry] : stored->tensors()) {
    const auto bytes = stored->bytes(entry);
    folder.tensors[name] = {entry.tensor->dtype, entry.tensor->shape, {bytes.begin(), bytes.end()}};
  }
  return folder;
}

std::string Save(const Folder& folder) {
  const std::string path = FreshFolder();
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, t] : folder.tensors) specs.push_back({name, t.dtype, t.shape});
  auto writer =
      SafetensorsWriter::Create(path + "/model.safetensors", *LayOutSafetensors(specs, {}));
  EXPECT_TRUE(writer.ok());
  for (const auto& [name, t] : folder.tensors) {
    EXPECT_TRUE(writer->Write(name, 0, t.bytes).ok());
  }
  EXPECT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(WriteWholeFile(path + "/config.json", folder.config).ok());
  return path;
}

TEST(HfFolder, RefusesNamingFileAndTensor) {
  const std::string original = FreshFolder();
  ASSERT_TRUE(WriteHfFolder(original, SmallQwen2(), {}, MadeUpSource()).ok());
  const std::string kEmbedding = "model.embed_tokens.weight";
  const struct {
    const char* name;
    std::function<void(Folder&)> change;
    absl::StatusCode code;
    std::vector<std::string> said;
  } kCases[] = {
      {"as_it_is", [](Folder&) {}, absl::StatusCode::kOk, {}},
      {"missing",
       [](Folder& f) { f.tensors.erase("model.norm.weight"); },
       absl::StatusCode::kInvalidArgument,
       {"'model.norm.weight'", "missing"}},
      {"surplus",
       [](Folder& f) { f.tensors["x"] = f.tensors["model.norm.weight"]; },
       absl::StatusCode::kInvalidArgument,
       {"'x'"}},
      {"wrong_dtype",
       [](Folder& f) { f.tensors["model.norm.weight"].dtype = SafetensorsDType::kI32; },
       absl::StatusCode::kUnimplemented,
       {"/model.safetensors", "model.norm.weight", "dtype I32", "F32, BF16, F16"}},
      {"equal_head",
       [&](Folder& f) { f.tensors["lm_head.weight"] = f.tensors[kEmbedding]; },
       absl::StatusCode::kOk,
       {}},
      {"other_head",
       [&](Folder& f) {
         f.tensors["lm_head.weight"] = f.tensors[kEmbedding];
         f.tensors["lm_head.weight"].bytes.back() ^= 1;
       },
       absl::StatusCode::kInvalidArgument,
       {"/model.safetensors", "lm_head.weight", kEmbedding, "tie_word_embeddings"}},
      {"config",
       [](Folder& f) { f.config.resize(20); },
       absl::StatusCode::kInvalidArgument,
       {"/config.json", "syntax error"}},
      {"config_of_another",
       [](Folder& f) { f.config = "{\"model_type\":\"qwen2\",\"num_hidden_layers\":1}"; },
       absl::StatusCode::kInvalidArgument,
       {"tensor '", "but the config gives"}},
  };
  for (const auto& c : kCases) {
    Folder folder = Load(original);
    c.change(folder);
    const std::string path = Save(folder);
    const absl::Status status = OpenWeights(path).status();
    EXPECT_EQ(status.code(), c.code) << c.name << ": " << status;
    for (const std::string& said : c.said) {
      EXPECT_NE(status.message().find(said), absl::string_view::npos) << c.name << ": " << status;
    }
    if (c.code != absl::StatusCode::kOk) {
      EXPECT_EQ(status.message().find(path), 0u) << c.name << ": " << status;
    }
  }
}

TEST(OpenWeights, TellsFormatsByTheirContent) {
  const std::string folder = FreshFolder();
  EXPECT_EQ(OpenWeights(folder + "/none").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteWholeFile(folder + "/f", "hello, this is neither").ok());
  const absl::Status neither = OpenWeights(folder + "/f").status();
  EXPECT_EQ(neither.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(neither.message().find(folder + "/f"), 0u) << neither;
}

}  // namespace
}  // namespace tessera
