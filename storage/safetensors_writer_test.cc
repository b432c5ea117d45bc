#include "storage/safetensors_writer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

using enum SafetensorsDType;

std::string FreshFolder() {
  std::string path = testing::TempDir() + "/swXXXXXX";
  return mkdtemp(path.data());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<uint8_t> Counting(size_t size, uint8_t first = 0) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(first + i);
  return bytes;
}

TEST(LayOutSafetensors, OrdersByDTypeThenName) {
  const auto layout = LayOutSafetensors(
      {{"b", kF32, {1}}, {"a", kU8, {3}}, {"a2", kF32, {}}, {"c", kI64, {2, 0}}, {"d", kBF16, {2}}},
      {{"format", "pt"}, {"a", "\"\n"}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::string json(layout->head.substr(8));
  EXPECT_EQ(json.size() % 8, 0u);
  EXPECT_EQ(json.substr(0, json.find_last_not_of(' ') + 1),
            "{\"__metadata__\":{\"a\":\"\\\"\\n\",\"format\":\"pt\"},"
            "\"c\":{\"dtype\":\"I64\",\"shape\":[2,0],\"data_offsets\":[0,0]},"
            "\"a2\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
            "\"d\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[8,12]},"
            "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[12,15]}}");
  EXPECT_EQ(layout->data_bytes, 15);
}

TEST(LayOutSafetensors, RefusesWhatReadersWould) {
  const struct {
    const char* name;
    std::vector<SafetensorsSpec> specs;
    const char* reason;
  } kCases[] = {
      {"reserved_name", {{"__metadata__", kF32, {1}}}, "reserves this name"},
      {"duplicate",
       {{"a", kF32, {1}}, {"b", kF32, {1}}, {"a", kU8, {1}}},
       "'a': the name is there"},
      {"not_utf8", {{"\xff", kF32, {1}}}, "not UTF-8"},
      {"half_a_byte", {{"a", kF4, {3}}}, "12 bits"},
      {"overflow", {{"a", kU8, {uint64_t{1} << 32, uint64_t{1} << 32}}}, "beyond 64 bits"},
      {"too_large", {{"a", kU8, {uint64_t{1} << 63}}}, "beyond 64 bits"},
      {"sum_too_large",
       {{"a", kU8, {uint64_t{1} << 60}},
        {"b", kU8, {uint64_t{1} << 60}},
        {"c", kU8, {uint64_t{1} << 60}},
        {"d", kU8, {uint64_t{1} << 60}},
        {"e", kU8, {1}}},
       "add up"},
  };
  for (const auto& c : kCases) {
    const auto layout = LayOutSafetensors(c.specs, {});
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_NE(layout.status().message().find(c.reason), absl::string_view::npos)
        << c.name << ": " << layout.status();
  }
}

// The files that EXPECTED.tsv calls "exact writer output" of the format's own library.
TEST(SafetensorsWriter, WritesTheBytesOfTheFormatsOwnLibrary) {
  for (const char* name : {"ok_empty", "ok_serialization_attn0", "ok_forced_alignment"}) {
    const std::string path = absl::StrCat("storage/testdata/safetensors/", name, ".safetensors");
    auto original = SafetensorsFile::Open(path);
    ASSERT_TRUE(original.ok()) << original.status();
    std::vector<SafetensorsSpec> specs;
    for (const SafetensorsTensor& t : original->tensors())
      specs.push_back({t.name, t.dtype, t.shape});
    const std::string copy = FreshFolder() + "/copy";
    auto layout = LayOutSafetensors(specs, original->metadata());
    ASSERT_TRUE(layout.ok()) << layout.status();
    auto writer = SafetensorsWriter::Create(copy, *layout);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const SafetensorsTensor& t : original->tensors()) {
      ASSERT_TRUE(writer->Write(t.name, 0, original->bytes(t)).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
    EXPECT_EQ(ReadFile(copy), ReadFile(path)) << name;
  }
}

// Pieces in any order, by two threads of the creator and by a second writer.
TEST(SafetensorsWriter, SeveralWritersFillOneFile) {
  const std::string path = FreshFolder() + "/f.safetensors";
  const auto layout =
      LayOutSafetensors({{"a", kU8, {100}}, {"b", kF32, {50}}, {"z", kU8, {0}}}, {});
  ASSERT_TRUE(layout.ok());
  auto creator = SafetensorsWriter::Create(path, *layout);
  ASSERT_TRUE(creator.ok()) << creator.status();
  auto other = SafetensorsWriter::Join(path, *layout);
  ASSERT_TRUE(other.ok()) << other.status();
  const std::vector<uint8_t> a = Counting(100), b = Counting(200, 7);
  auto write = [](SafetensorsWriter& writer, const char* name, const std::vector<uint8_t>& bytes,
                  int64_t begin, int64_t end) {
    EXPECT_TRUE(writer.Write(name, begin, {bytes.data() + begin, size_t(end - begin)}).ok());
  };
  std::thread first([&] {
    for (int64_t i = 198; i >= 100; i -= 2) write(*creator, "b", b, i, i + 2);
  });
  std::thread second([&] {
    for (int64_t i = 0; i < 100; i += 5) write(*creator, "a", a, i, i + 5);
  });
  write(*other, "b", b, 0, 100);
  first.join();
  second.join();
  const auto by_other = other->Sync();
  ASSERT_TRUE(by_other.ok());
  EXPECT_EQ(*by_other, 100);
  EXPECT_EQ(creator->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(creator->Commit(*by_other).ok());
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(*file->Find("a")), a);
  EXPECT_EQ(file->bytes(*file->Find("b")), b);
}

TEST(SafetensorsWriter, RefusesHolesOverlapsAndStrangers) {
  const std::string path = FreshFolder() + "/f.safetensors";
  const auto layout = LayOutSafetensors({{"a", kU8, {10}}, {"b", kU8, {4}}}, {});
  auto writer = SafetensorsWriter::Create(path, *layout);
  ASSERT_TRUE(writer.ok());
  const std::vector<uint8_t> bytes = Counting(20);
  auto write = [&](const char* name, int64_t offset, size_t size) {
    return writer->Write(name, offset, {bytes.data(), size});
  };
  EXPECT_EQ(write("c", 0, 1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(write("a", 8, 3).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(write("a", -1, 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(write("a", 2, 3).ok());
  EXPECT_TRUE(write("a", 5, 2).ok());
  for (const auto& [offset, size] :
       {std::pair<int64_t, size_t>{2, 1}, {6, 1}, {4, 4}, {0, 3}, {0, 10}}) {
    EXPECT_EQ(write("a", offset, size).code(), absl::StatusCode::kAlreadyExists)
        << offset << "+" << size;
  }
  EXPECT_TRUE(write("a", 0, 2).ok());
  EXPECT_TRUE(write("b", 0, 4).ok());
  const absl::Status hole = writer->Commit();
  EXPECT_EQ(hole.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(hole.message().find("tensor 'a' byte 7"), absl::string_view::npos) << hole;
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto others = LayOutSafetensors({{"a", kU8, {10}}, {"c", kU8, {4}}}, {});
  EXPECT_EQ(SafetensorsWriter::Join(path, *others).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(write("a", 7, 3).ok());
  EXPECT_TRUE(writer->Commit().ok());
}

}  // namespace
}  // namespace tessera
