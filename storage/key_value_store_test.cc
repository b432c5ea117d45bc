// One suite for every implementation of KeyValueStore.
#include "storage/key_value_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {
namespace {

std::string FreshFolder() {
  std::string path = testing::TempDir() + "/kvXXXXXX";
  return mkdtemp(path.data());
}

class KeyValueStoreTest : public testing::TestWithParam<const char*> {
 protected:
  KeyValueStoreTest()
      : store_(std::string(GetParam()) == "rocksdb" ? *OpenRocksKeyValueStore(FreshFolder())
                                                    : NewMemoryKeyValueStore()) {}
  std::vector<std::string> Keys(absl::string_view prefix) {
    std::vector<std::string> keys;
    EXPECT_TRUE(store_
                    ->Scan(prefix,
                           [&](absl::string_view key, absl::string_view) {
                             keys.emplace_back(key);
                             return true;
                           })
                    .ok());
    return keys;
  }
  std::unique_ptr<KeyValueStore> store_;
};

TEST_P(KeyValueStoreTest, PutGetDeleteScan) {
  WriteBatch batch;
  batch.Put("job/b", std::string("v\0w", 3));
  batch.Put("job/a", "1");
  batch.Put("jobs", "2");
  ASSERT_TRUE(store_->Write(batch, Durability::kSynced).ok());
  EXPECT_EQ(*store_->Get("job/b"), std::string("v\0w", 3));
  EXPECT_EQ(Keys("job/"), (std::vector<std::string>{"job/a", "job/b"}));
  WriteBatch second;
  second.Delete("job/a");
  second.Put("job/b", "3");
  ASSERT_TRUE(store_->Write(second, Durability::kBuffered).ok());
  EXPECT_EQ(Keys("job/"), std::vector<std::string>{"job/b"});
  EXPECT_EQ(store_->Get("job/a").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(KeyValueStoreTest, ScanStopsWhenAsked) {
  WriteBatch batch;
  for (const char* key : {"a1", "a2", "a3"}) batch.Put(key, "");
  ASSERT_TRUE(store_->Write(batch, Durability::kSynced).ok());
  int visited = 0;
  ASSERT_TRUE(
      store_->Scan("a", [&](absl::string_view, absl::string_view) { return ++visited < 2; }).ok());
  EXPECT_EQ(visited, 2);
}

INSTANTIATE_TEST_SUITE_P(All, KeyValueStoreTest, testing::Values("rocksdb", "memory"));

TEST(RocksKeyValueStore, KeepsWhatWasWrittenAndIsHeldByOneOwner) {
  const std::string path = FreshFolder();
  {
    auto store = *OpenRocksKeyValueStore(path);
    WriteBatch batch;
    batch.Put("k", "v");
    ASSERT_TRUE(store->Write(batch, Durability::kSynced).ok());
    EXPECT_EQ(OpenRocksKeyValueStore(path).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(*(*OpenRocksKeyValueStore(path))->Get("k"), "v");
}

TEST(RocksKeyValueStore, NamesThePathItCannotOpen) {
  absl::Status status = OpenRocksKeyValueStore("/proc/none/kv").status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/proc/none/kv"), absl::string_view::npos);
}

}  // namespace
}  // namespace tessera
