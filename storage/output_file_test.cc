#include "storage/output_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera {
namespace {

std::string FreshFolder() {
  std::string path = testing::TempDir() + "/outXXXXXX";
  return mkdtemp(path.data());
}

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::Span<const uint8_t> Bytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(OutputFile, AppearsWholeWhenCommitted) {
  const std::string path = FreshFolder() + "/f";
  std::ofstream(path) << "old";
  std::ofstream(path + ".partial") << "left by a broken-off writer, longer than the new file";
  auto file = OutputFile::Create(path, 6);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->WriteAt(3, Bytes("def")).ok());
  ASSERT_TRUE(file->WriteAt(0, Bytes("abc")).ok());
  EXPECT_EQ(Read(path), "old");
  EXPECT_EQ(*file->ReadAt(2, 2), "cd");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Read(path), "abcdef");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_EQ(file->Commit().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(OutputFile, LeavesNothingBehindWithoutCommit) {
  const std::string folder = FreshFolder();
  {
    auto file = OutputFile::Create(folder + "/f", 3);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(std::filesystem::exists(folder + "/f.partial"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(OutputFile, SeveralWritersFillOneFile) {
  const std::string path = FreshFolder() + "/f";
  auto creator = OutputFile::Create(path, 4);
  ASSERT_TRUE(creator.ok());
  {
    auto other = OutputFile::Join(path, 4);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_TRUE(other->WriteAt(2, Bytes("cd")).ok());
    EXPECT_TRUE(other->Sync().ok());
    EXPECT_EQ(other->Commit().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(creator->WriteAt(0, Bytes("ab")).ok());
  EXPECT_EQ(OutputFile::Join(path, 5).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(creator->Commit().ok());
  EXPECT_EQ(Read(path), "abcd");
}

TEST(OutputFile, NamesTheFileItCannotWrite) {
  const absl::Status none = OutputFile::Create("/none/at/all", 1).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(none.message().find("/none/at/all"), absl::string_view::npos) << none;
  const std::string path = FreshFolder() + "/f";
  EXPECT_EQ(OutputFile::Join(path, 1).status().code(), absl::StatusCode::kNotFound);
  // No file system has room for this.
  EXPECT_EQ(OutputFile::Create(path, int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  auto file = OutputFile::Create(path, 4);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->WriteAt(3, Bytes("xy")).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(file->WriteAt(-1, Bytes("x")).code(), absl::StatusCode::kOutOfRange);
}

TEST(WriteWholeFile, Writes) {
  const std::string path = FreshFolder() + "/f";
  ASSERT_TRUE(WriteWholeFile(path, "text").ok());
  EXPECT_EQ(Read(path), "text");
  ASSERT_TRUE(WriteWholeFile(path, "").ok());
  EXPECT_EQ(Read(path), "");
}

}  // namespace
}  // namespace tessera
