#include "storage/sharded_safetensors.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "storage/output_file.h"
#include "storage/sharded_safetensors_writer.h"

namespace tessera {
namespace {

using enum SafetensorsDType;

std::string FreshFolder() {
  std::string path = testing::TempDir() + "/shXXXXXX";
  return mkdtemp(path.data());
}

SafetensorsSpec Bytes(const char* name, uint64_t size) { return {name, kU8, {size}}; }

// Tensors filled with their name's first letter.
void WriteAll(const std::string& folder, const std::vector<SafetensorsSpec>& specs, int64_t max) {
  auto plan = PlanSafetensorsShards(specs, {{"format", "pt"}}, max);
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto writer = ShardedSafetensorsWriter::Create(folder, *plan);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const SafetensorsSpec& spec : specs) {
    const std::vector<uint8_t> bytes(spec.shape[0], spec.name[0]);
    ASSERT_TRUE(writer->Write(spec.name, 0, bytes).ok());
  }
  EXPECT_EQ(writer->Write("none", 0, {}).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(writer->Commit().ok());
}

void WriteShard(const std::string& path, const std::vector<SafetensorsSpec>& specs) {
  auto writer = SafetensorsWriter::Create(path, *LayOutSafetensors(specs, {}));
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const SafetensorsSpec& spec : specs) {
    ASSERT_TRUE(writer->Write(spec.name, 0, std::vector<uint8_t>(spec.shape[0], 'x')).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
}

TEST(PlanShards, SplitsGreedilyInTheGivenOrder) {
  const struct {
    const char* name;
    std::vector<SafetensorsSpec> specs;
    std::vector<std::string> shards;  // names in each, by the file's order
  } kCases[] = {
      {"none", {}, {""}},
      {"one", {Bytes("b", 5), Bytes("a", 5)}, {"ab"}},
      {"full_to_the_brim", {Bytes("b", 5), Bytes("a", 5), Bytes("c", 1)}, {"ab", "c"}},
      {"no_going_back", {Bytes("a", 6), Bytes("b", 6), Bytes("c", 4)}, {"a", "bc"}},
      {"large_alone", {Bytes("a", 6), Bytes("b", 11), Bytes("c", 4)}, {"b", "ac"}},
      {"large_last", {Bytes("a", 6), Bytes("b", 11)}, {"b", "a"}},
      {"empty_tensors", {Bytes("a", 10), Bytes("b", 0), Bytes("c", 1)}, {"ab", "c"}},
  };
  for (const auto& c : kCases) {
    const auto plan = PlanSafetensorsShards(c.specs, {}, 10);
    ASSERT_TRUE(plan.ok()) << c.name << ": " << plan.status();
    std::vector<std::string> shards;
    int64_t total = 0;
    for (size_t i = 0; i < plan->shards.size(); ++i) {
      shards.emplace_back();
      for (const auto& t : plan->shards[i].layout.tensors) shards.back() += t.name;
      total += plan->shards[i].layout.data_bytes;
      EXPECT_EQ(plan->shards[i].file_name, plan->shards.size() == 1
                                               ? "model.safetensors"
                                               : absl::StrCat("model-0000", i + 1, "-of-0000",
                                                              plan->shards.size(), ".safetensors"));
    }
    EXPECT_EQ(shards, c.shards) << c.name;
    EXPECT_EQ(plan->total_size_bytes, total) << c.name;
    EXPECT_EQ(plan->index_json.empty(), shards.size() == 1) << c.name;
  }
}

TEST(PlanShards, WritesTheIndexAsHuggingFaceDoes) {
  const auto plan = PlanSafetensorsShards({Bytes("b", 6), Bytes("a", 6)}, {}, 10);
  EXPECT_EQ(plan->index_json,
            "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00002-of-00002.safetensors\",\n"
            "    \"b\": \"model-00001-of-00002.safetensors\"\n  }\n}\n");
}

TEST(PlanShards, Refuses) {
  EXPECT_EQ(PlanSafetensorsShards({}, {}, 0).status().code(), absl::StatusCode::kInvalidArgument);
  // In one shard, and in two.
  for (const int64_t max : {10, 5}) {
    const auto plan = PlanSafetensorsShards({Bytes("a", 5), Bytes("a", 5)}, {}, max);
    EXPECT_NE(plan.status().message().find("'a'"), absl::string_view::npos) << plan.status();
  }
}

TEST(ShardedSafetensors, ReadsWhatWasWritten) {
  for (const int64_t max : {100, 10}) {
    const std::string folder = FreshFolder();
    WriteAll(folder, {Bytes("a", 6), Bytes("b", 6), Bytes("c", 4)}, max);
    auto read = ShardedSafetensors::OpenFolder(folder);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->tensors().size(), 3u);
    for (const auto& [name, entry] : read->tensors()) {
      EXPECT_EQ(read->bytes(entry), std::vector<uint8_t>(name == "c" ? 4 : 6, name[0]));
      EXPECT_EQ(entry.file->metadata().at("format"), "pt");
    }
    EXPECT_EQ(ShardedSafetensorsWriter::Create(folder, {}).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
}

TEST(ShardedSafetensors, NothingIsThereBeforeCommit) {
  const std::string folder = FreshFolder();
  {
    auto writer =
        ShardedSafetensorsWriter::Create(folder, *PlanSafetensorsShards({Bytes("a", 6)}, {}, 10));
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

constexpr char kA[] = "model-00001-of-00002.safetensors";
constexpr char kB[] = "model-00002-of-00002.safetensors";

TEST(ShardedSafetensors, RefusesAnIndexThatLies) {
  const struct {
    const char* name;
    std::string weight_map;
    absl::StatusCode code;
    const char* said;
  } kCases[] = {
      {"truth", absl::StrCat("{\"a\":\"", kA, "\",\"b\":\"", kB, "\"}"), absl::StatusCode::kOk, ""},
      {"missing", absl::StrCat("{\"a\":\"", kA, "\",\"b\":\"", kB, "\",\"c\":\"", kB, "\"}"),
       absl::StatusCode::kInvalidArgument, "tensor 'c' is missing"},
      {"surplus", absl::StrCat("{\"a\":\"", kA, "\",\"c\":\"", kB, "\"}"),
       absl::StatusCode::kInvalidArgument, "tensor 'b' is in this file"},
      {"swapped", absl::StrCat("{\"a\":\"", kB, "\",\"b\":\"", kA, "\"}"),
       absl::StatusCode::kInvalidArgument, "names another file"},
      {"no_shard", absl::StrCat("{\"a\":\"", kA, "\",\"b\":\"none.safetensors\"}"),
       absl::StatusCode::kNotFound, "none.safetensors"},
  };
  for (const auto& c : kCases) {
    const std::string folder = FreshFolder();
    WriteShard(absl::StrCat(folder, "/", kA), {Bytes("a", 3)});
    WriteShard(absl::StrCat(folder, "/", kB), {Bytes("b", 3)});
    ASSERT_TRUE(WriteWholeFile(absl::StrCat(folder, "/", kSafetensorsIndexName),
                               absl::StrCat("{\"weight_map\":", c.weight_map, "}"))
                    .ok());
    const auto read = ShardedSafetensors::OpenFolder(folder);
    EXPECT_EQ(read.status().code(), c.code) << c.name << ": " << read.status();
    EXPECT_NE(read.status().message().find(c.said), absl::string_view::npos)
        << c.name << ": " << read.status();
  }
}

TEST(ShardedSafetensors, TellsWhichFilesAreThere) {
  const std::string folder = FreshFolder();
  EXPECT_EQ(ShardedSafetensors::OpenFolder(folder).status().code(), absl::StatusCode::kNotFound);
  WriteShard(absl::StrCat(folder, "/", kSafetensorsFileName), {Bytes("a", 3)});
  EXPECT_TRUE(ShardedSafetensors::OpenFolder(folder).ok());
  ASSERT_TRUE(WriteWholeFile(absl::StrCat(folder, "/", kSafetensorsIndexName), "{}").ok());
  const auto both = ShardedSafetensors::OpenFolder(folder);
  EXPECT_NE(both.status().message().find("both"), absl::string_view::npos) << both.status();
  std::filesystem::remove(absl::StrCat(folder, "/", kSafetensorsFileName));
  const auto bad = ShardedSafetensors::OpenFolder(folder);
  EXPECT_NE(bad.status().message().find(kSafetensorsIndexName), absl::string_view::npos);
}

TEST(ParseSafetensorsIndex, TrustsNoFileName) {
  const char* kNames[] = {"../m.safetensors",
                          "/m.safetensors",
                          "a/m.safetensors",
                          "..\\\\m.safetensors",
                          "m.bin",
                          ".safetensors",
                          "..",
                          "",
                          ".m.safetensors",
                          "m.safetensors\\u0000",
                          "m\\u0000.safetensors"};
  for (const char* name : kNames) {
    const auto index =
        ParseSafetensorsIndex(absl::StrCat("{\"weight_map\":{\"a\":\"", name, "\"}}"));
    EXPECT_EQ(index.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(index.status().message().find("'a'"), absl::string_view::npos) << index.status();
  }
  const std::string long_name = std::string(250, 'm') + ".safetensors";
  EXPECT_FALSE(ParseSafetensorsIndex("{\"weight_map\":{\"a\":\"" + long_name + "\"}}").ok());
}

TEST(ParseSafetensorsIndex, RefusesMalformedDocuments) {
  const struct {
    const char* text;
    const char* said;
  } kCases[] = {
      {"", "syntax error"},
      {"[]", "weight_map is missing"},
      {"{}", "weight_map is missing"},
      {"{\"weight_map\":[]}", "no object"},
      {"{\"weight_map\":{}}", "empty"},
      {"{\"weight_map\":{\"a\":1}}", "'a'"},
      {"{\"weight_map\":{\"a\":\"m.safetensors\",\"a\":\"n.safetensors\"}}", "duplicate key 'a'"},
      {"{\"weight_map\":{\"a\":\"m.safetensors\"},\"weight_map\":{}}", "duplicate key"},
  };
  for (const auto& c : kCases) {
    const auto index = ParseSafetensorsIndex(c.text);
    EXPECT_EQ(index.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_NE(index.status().message().find(c.said), absl::string_view::npos) << index.status();
  }
  const auto index = ParseSafetensorsIndex(
      "{\"metadata\":{\"total_size\":\"?\"},\"weight_map\":{\"a\":\"m.safetensors\"}}");
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->at("a"), "m.safetensors");
}

}  // namespace
}  // namespace tessera
