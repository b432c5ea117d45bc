#include "storage/tier_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/fault_file_system.h"
#include "storage/tier_test_values.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TierStoreOptions SmallOptions(const std::string& path) {
  TierStoreOptions options;
  options.path = path;
  options.write_depth = 3;
  options.read_depth = 3;
  options.write_buffer_bytes = 16 << 10;
  options.min_file_bytes = 64 << 10;
  options.file_bytes = 256 << 10;
  return options;
}

std::unique_ptr<TierStore> OpenStore(const TierStoreOptions& options) {
  auto store = TierStore::Open(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

class TierStoreTest : public testing::Test {
 protected:
  TierStoreTest() : path_(NewTestFolder()), store_(OpenStore(SmallOptions(path_))) {}
  void Reopen() {
    store_ = nullptr;
    store_ = OpenStore(SmallOptions(path_));
  }
  void ExpectNoStrayFiles() {
    store_ = nullptr;
    auto files = StrayFiles(path_);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_THAT(*files, IsEmpty());
  }

  const std::string path_;
  const std::vector<TestValue> values_ = TestValues(12, 64 << 10);
  std::unique_ptr<TierStore> store_;
};

TEST_F(TierStoreTest, StepsOfSeveralJobsStayUntilTheyAreDropped) {
  for (const int64_t step : {0, 1, 300}) {
    for (const char* job : {"a", "b"}) {
      const absl::Status status = WriteTestStep(*store_, job, step, values_);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  EXPECT_THAT(StepNames(*store_), ElementsAre("a 0", "a 1", "a 300", "b 0", "b 1", "b 300"));
  EXPECT_THAT(store_->jobs(), ElementsAre("a", "b"));
  ASSERT_TRUE(store_->DropStep("a", 1).ok());
  ASSERT_TRUE(store_->DropStep("a", 1).ok()) << "idempotent";
  ASSERT_TRUE(store_->DropStep("c", 1).ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(StepNames(*store_), ElementsAre("a 0", "a 300", "b 0", "b 1", "b 300"));
    for (const int64_t step : {0, 300}) {
      const absl::Status status = CheckTestStep(*store_, "a", step, values_);
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(CheckTestStep(*store_, "b", 1, values_).ok());
    Reopen();
  }
  ASSERT_TRUE(store_->DropJob("b").ok());
  EXPECT_THAT(StepNames(*store_), ElementsAre("a 0", "a 300"));
  ExpectNoStrayFiles();
}

TEST_F(TierStoreTest, WithoutCommitNothingStays) {
  ASSERT_TRUE(WriteTestStep(*store_, "a", 1, values_).ok());
  {
    const std::vector<uint8_t> bytes(300 << 10, 7);
    auto writer = *store_->BeginStep("a", 2, 0);
    ASSERT_TRUE(
        writer->StartWrite("head", "optimizer", 0, DType::kUInt8, {300 << 10}, bytes, nullptr)
            .ok());
  }
  EXPECT_THAT(StepNames(*store_), ElementsAre("a 1"));
  ExpectNoStrayFiles();
}

TEST_F(TierStoreTest, EmptyStepIsAStep) {
  ASSERT_TRUE(WriteTestStep(*store_, "a", 1, {}).ok());
  Reopen();
  EXPECT_TRUE(CheckTestStep(*store_, "a", 1, {}).ok());
}

TEST_F(TierStoreTest, NamesWhatIsWrong) {
  ASSERT_TRUE(WriteTestStep(*store_, "a", 1, values_).ok());
  std::vector<uint8_t> bytes(2000);
  const auto read = [&](const TierKey& key, DType dtype, int64_t count) {
    return store_->Read(key, dtype, count, absl::MakeSpan(bytes));
  };
  const auto begin = [&](const std::string& job, int64_t step, int64_t expected) {
    return store_->BeginStep(job, step, expected).status();
  };
  auto writer = *store_->BeginStep("a", 7, 0);
  const auto write = [&](std::vector<int64_t> shape, size_t size) {
    return writer->StartWrite("u", "k", 0, DType::kFloat32, std::move(shape),
                              absl::MakeSpan(bytes).first(size), nullptr);
  };
  EXPECT_TRUE(write({2, 3}, 24).ok());
  const DType bf16 = DType::kBFloat16;
  const struct {
    absl::Status status;
    absl::StatusCode code;
    const char* text;
  } kCases[] = {
      {read({"b", 1, "embedding", "parameters", 0}, bf16, 1000), absl::StatusCode::kNotFound,
       "job b step 1 unit embedding"},
      {read({"a", 2, "embedding", "parameters", 0}, bf16, 1000), absl::StatusCode::kNotFound,
       "job a step 2"},
      {read({"a", 1, "layer.99", "parameters", 0}, bf16, 1000), absl::StatusCode::kNotFound,
       "unit layer.99"},
      {read({"a", 1, "embedding", "parameters", 1}, bf16, 1000), absl::StatusCode::kNotFound,
       "at 1"},
      {read({"a", 1, "embedding", "parameters", 0}, DType::kFloat16, 1000),
       absl::StatusCode::kFailedPrecondition, "has 1000 bfloat16, not 1000 float16"},
      {read({"a", 1, "embedding", "parameters", 0}, bf16, 999), absl::StatusCode::kInvalidArgument,
       "2000 bytes cannot take 999 bfloat16"},
      {begin("a", 1, 0), absl::StatusCode::kAlreadyExists, "committed already"},
      {begin("a", 7, 0), absl::StatusCode::kAlreadyExists, "being written already"},
      {begin("a", -1, 0), absl::StatusCode::kInvalidArgument, "step -1"},
      {begin("a/b", 1, 0), absl::StatusCode::kInvalidArgument, "job 'a/b'"},
      {begin("", 1, 0), absl::StatusCode::kInvalidArgument, "job ''"},
      {begin("a", 8, int64_t{1} << 60), absl::StatusCode::kResourceExhausted, "do not fit"},
      {write({2, 3}, 24), absl::StatusCode::kAlreadyExists, "unit u k at 0 is written twice"},
      {write({2, 3}, 20), absl::StatusCode::kInvalidArgument, "20 bytes are no float32 (2, 3)"},
      {write({-2, -3}, 24), absl::StatusCode::kInvalidArgument, "24 bytes"},
      {store_->Values("a", 3).status(), absl::StatusCode::kNotFound, "job a step 3"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(c.status.code(), c.code) << c.status;
    EXPECT_THAT(std::string(c.status.message()), HasSubstr(c.text));
  }
}

TEST_F(TierStoreTest, KeepsShapesAndCounts) {
  const std::vector<uint8_t> bytes(24, 3);
  {
    auto writer = *store_->BeginStep("a", 1, 24);
    ASSERT_TRUE(writer->StartWrite("u", "k", 5, DType::kFloat32, {2, 3}, bytes, nullptr).ok());
    ASSERT_TRUE(writer->Commit("").ok());
  }
  Reopen();
  const std::vector<TierValueHeader> values = *store_->Values("a", 1);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_THAT(values[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(values[0].begin, 5);
  EXPECT_EQ(store_->stats().resident_bytes, 24);
  std::vector<uint8_t> to(24);
  ASSERT_TRUE(store_->Read({"a", 1, "u", "k", 5}, DType::kFloat32, 6, absl::MakeSpan(to)).ok());
  EXPECT_EQ(to, bytes);
  EXPECT_EQ(store_->stats().read_bytes, 24);
}

TEST_F(TierStoreTest, OneProcessHoldsTheFolder) {
  const absl::Status status = TierStore::Open(SmallOptions(path_)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("another process holds"));
}

TEST_F(TierStoreTest, SpaceThatOtherWritersExpectIsTaken) {
  store_ = nullptr;
  auto plan = std::make_shared<FaultPlan>();
  plan->free_bytes = 1000;
  TierStoreOptions options = SmallOptions(path_);
  options.reserve_bytes = 100;
  options.file_system = NewFaultFileSystem(plan);
  auto store = OpenStore(options);
  EXPECT_EQ(store->free_bytes(), 900);
  auto first = store->BeginStep("a", 1, 500);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(store->free_bytes(), 400);
  const absl::Status refused = store->BeginStep("b", 1, 401).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("job b step 1"));
  EXPECT_TRUE(store->BeginStep("b", 1, 400).ok());
  *first = nullptr;
  EXPECT_TRUE(store->CheckSpace(900).ok());
  EXPECT_FALSE(store->CheckSpace(901).ok());
}

// Deletes of the old database are on their way while the new one makes files of the same names.
TEST_F(TierStoreTest, AJobThatIsDroppedAndWrittenAgainKeepsItsFiles) {
  for (int round = 0; round < 10; ++round) {
    for (const int64_t step : {1, 2, 3}) {
      ASSERT_TRUE(WriteTestStep(*store_, "a", step, values_).ok());
      if (step > 1) {
        ASSERT_TRUE(store_->DropStep("a", step - 1).ok());
      }
    }
    if (round % 2 == 0) {
      ASSERT_TRUE(store_->DropJob("a").ok());
    } else {
      ASSERT_TRUE(store_->DropStep("a", 3).ok());
    }
    EXPECT_THAT(StepNames(*store_), IsEmpty());
  }
  ASSERT_TRUE(WriteTestStep(*store_, "a", 1, values_).ok());
  Reopen();
  const absl::Status status = CheckTestStep(*store_, "a", 1, values_);
  EXPECT_TRUE(status.ok()) << status;
  ExpectNoStrayFiles();
}

// A LOG on a full disk ends the process, and space that is reserved ahead is nobody's.
TEST_F(TierStoreTest, TakesLittleBesideItsValues) {
  ASSERT_TRUE(WriteTestStep(*store_, "a", 1, values_).ok());
  int64_t blocks = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    EXPECT_NE(entry.path().filename(), "LOG");
    struct stat file = {};
    ASSERT_EQ(stat(entry.path().c_str(), &file), 0);
    blocks += file.st_blocks;
  }
  EXPECT_LT(blocks * 512, 2 * store_->stats().resident_bytes + (1 << 20));
}

// Writers of several jobs, readers and droppers at a time.
TEST_F(TierStoreTest, ManyThreads) {
  const std::vector<TestValue> values = TestValues(4, 64 << 10);
  std::atomic<int> failures = 0;
  const auto expect_ok = [&](const absl::Status& status) {
    if (status.ok()) return;
    ++failures;
    ADD_FAILURE() << status;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, job = absl::StrCat("job", t)] {
      for (int64_t step = 0; step < 6; ++step) {
        expect_ok(WriteTestStep(*store_, job, step, values));
        expect_ok(CheckTestStep(*store_, job, step, values));
        if (step > 0) expect_ok(store_->DropStep(job, step - 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_THAT(StepNames(*store_), ElementsAre("job0 5", "job1 5", "job2 5"));
  ExpectNoStrayFiles();
}

}  // namespace
}  // namespace tessera
