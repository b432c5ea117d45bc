// Whatever fails, and wherever: the nvme tier holds exactly the steps that were committed, whole,
// and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/fault_file_system.h"
#include "storage/tier_store.h"
#include "storage/tier_test_values.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TierStoreOptions Options(const std::string& path, std::shared_ptr<FaultPlan> plan) {
  TierStoreOptions options;
  options.path = path;
  options.write_depth = 3;
  options.read_depth = 2;
  options.write_buffer_bytes = 16 << 10;
  options.min_file_bytes = 128 << 10;
  options.file_bytes = 192 << 10;
  if (plan != nullptr) options.file_system = NewFaultFileSystem(std::move(plan));
  return options;
}

bool IsLong() { return std::getenv("TESSERA_LONG_TESTS") != nullptr; }

const std::vector<TestValue>& Values() {
  static const auto& values = *new std::vector<TestValue>(TestValues(6, 80 << 10));
  return values;
}

void ExpectWhole(TierStore& store) {
  for (const TierStep& step : store.steps()) {
    const absl::Status status = CheckTestStep(store, step.job, step.step, Values());
    EXPECT_TRUE(status.ok()) << status;
  }
}

void ExpectNoStrayFiles(const std::string& path) {
  const auto files = StrayFiles(path);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, IsEmpty());
}

// What the caller was told: each step is there, is not, or (an error of a drop) may be.
struct Told {
  std::set<std::string> there, maybe;
};

void ExpectAsTold(const TierStore& store, const Told& told) {
  std::set<std::string> missing = told.there;
  for (const std::string& name : StepNames(store)) {
    EXPECT_TRUE(told.there.contains(name) || told.maybe.contains(name)) << name << " is there";
    missing.erase(name);
  }
  EXPECT_THAT(missing, IsEmpty());
}

// Three optimizer steps of a job beside a suspended one. Goes on after errors, as a worker may.
Told RunSteps(TierStore& store, std::vector<absl::Status>* errors) {
  Told told;
  told.there.insert("suspended 5");
  for (int64_t step = 1; step <= 3; ++step) {
    absl::Status status = WriteTestStep(store, "job", step, Values());
    if (status.ok()) {
      told.there.insert(absl::StrCat("job ", step));
    } else {
      errors->push_back(status);
      continue;
    }
    for (const TierStep& old : store.steps()) {
      if (old.job != "job" || old.step == step) continue;
      status = store.DropStep(old.job, old.step);
      const std::string name = absl::StrCat("job ", old.step);
      told.there.erase(name);
      if (!status.ok()) {
        errors->push_back(status);
        told.maybe.insert(name);
      } else {
        told.maybe.erase(name);
      }
    }
  }
  return told;
}

struct FaultCase {
  const char* name;
  FaultKind kind;
  bool fails_on;
  absl::StatusCode code;
};

class TierStoreFaultTest : public testing::TestWithParam<FaultCase> {};

// The n-th operation of opening, three steps and two drops fails, for every n (every few, unless
// the test is long).
TEST_P(TierStoreFaultTest, HoldsWhatItSaidAfterEveryFault) {
  const FaultCase& c = GetParam();
  const std::string path = NewTestFolder();
  {
    auto store = TierStore::Open(Options(path, nullptr));
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(WriteTestStep(**store, "suspended", 5, Values()).ok());
  }
  // Each kind at other operations.
  const int stride = IsLong() ? 1 : 11;
  for (int64_t n = 1 + (IsLong() ? 0 : 2 * static_cast<int>(c.kind));; n += stride) {
    SCOPED_TRACE(absl::StrCat("operation ", n));
    auto plan = std::make_shared<FaultPlan>();
    plan->fails_on = c.fails_on;
    plan->FailAt(n, c.kind);
    Told told;
    told.there.insert("suspended 5");
    bool has_failed = false;
    {
      auto store = TierStore::Open(Options(path, plan));
      if (!store.ok()) {
        ASSERT_TRUE(plan->has_failed()) << store.status();
        EXPECT_EQ(store.status().code(), c.code) << store.status();
      } else if (const std::vector<TierBrokenJob> broken = (*store)->broken(); !broken.empty()) {
        // It could not open the job; the next one can.
        has_failed = plan->has_failed();
        EXPECT_TRUE(has_failed) << broken[0].status;
        EXPECT_EQ(broken[0].job, "suspended");
        EXPECT_EQ(broken[0].status.code(), c.code) << broken[0].status;
      } else {
        std::vector<absl::Status> errors;
        told = RunSteps(**store, &errors);
        for (const absl::Status& error : errors) {
          EXPECT_EQ(error.code(), c.code) << error;
          EXPECT_THAT(std::string(error.message()), HasSubstr(path));
          EXPECT_THAT(std::string(error.message()), HasSubstr("job job step "));
        }
        if (!c.fails_on) {
          // One error takes at most one operation with it, and the store has gone on.
          EXPECT_LE(errors.size(), 1u);
          ExpectAsTold(**store, told);
          ExpectWhole(**store);
        }
        has_failed = plan->has_failed();
        plan->Stop();
        if (c.fails_on) {
          // The disk is well again.
          const absl::Status status = WriteTestStep(**store, "job", 9, Values());
          EXPECT_TRUE(status.ok()) << status;
          if (status.ok()) told.there.insert("job 9");
          ExpectAsTold(**store, told);
        }
      }
      has_failed = has_failed || !store.ok();
    }
    auto store = TierStore::Open(Options(path, nullptr));
    ASSERT_TRUE(store.ok()) << store.status();
    ExpectAsTold(**store, told);
    ExpectWhole(**store);
    ASSERT_TRUE((*store)->DropJob("job").ok());
    *store = nullptr;
    ExpectNoStrayFiles(path);
    if (!has_failed || HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TierStoreFaultTest,
    testing::Values(
        FaultCase{"io_error", FaultKind::kIoError, false, absl::StatusCode::kUnavailable},
        FaultCase{"no_space", FaultKind::kNoSpace, false, absl::StatusCode::kResourceExhausted},
        FaultCase{"short_write", FaultKind::kShortWrite, false, absl::StatusCode::kUnavailable},
        FaultCase{"late_error", FaultKind::kLate, false, absl::StatusCode::kUnavailable},
        FaultCase{"disk_stays_bad", FaultKind::kIoError, true, absl::StatusCode::kUnavailable},
        FaultCase{"disk_stays_full", FaultKind::kNoSpace, true,
                  absl::StatusCode::kResourceExhausted}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TierStoreFault, FullDiskIsAnErrorOfTheStepThatFillsIt) {
  const std::string path = NewTestFolder();
  auto plan = std::make_shared<FaultPlan>();
  auto store = TierStore::Open(Options(path, plan));
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(WriteTestStep(**store, "job", 1, Values()).ok());
  plan->quota_bytes = 200 << 10;
  const absl::Status status = WriteTestStep(**store, "job", 2, Values());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("job job step 2 unit "));
  EXPECT_THAT(StepNames(**store), ElementsAre("job 1"));
  ExpectWhole(**store);
  plan->quota_bytes = int64_t{1} << 40;
  EXPECT_TRUE(WriteTestStep(**store, "job", 2, Values()).ok());
  ExpectWhole(**store);
  *store = nullptr;
  ExpectNoStrayFiles(path);
}

TEST(TierStoreFault, ReadErrorIsUnavailableAndTheNextReadWorks) {
  const std::string path = NewTestFolder();
  auto plan = std::make_shared<FaultPlan>();
  auto store = TierStore::Open(Options(path, plan));
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(WriteTestStep(**store, "job", 1, Values()).ok());
  plan->counts_reads = true;
  plan->FailAt(1, FaultKind::kIoError);
  EXPECT_EQ(CheckTestStep(**store, "job", 1, Values()).code(), absl::StatusCode::kUnavailable);
  ExpectWhole(**store);
}

void Flip(const std::string& file, int64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(offset);
  const char byte = static_cast<char>(stream.get());
  stream.seekp(offset);
  stream.put(static_cast<char>(byte ^ 0x40));
}

// Any byte of any file of a job: its reads give DATA_LOSS or what was written, or the job is
// broken, which costs no other job.
TEST(TierStoreFault, FlippedByteIsNeverReadAsRightAndCostsOneJobAtMost) {
  const std::string path = NewTestFolder();
  {
    auto store = TierStore::Open(Options(path, nullptr));
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(WriteTestStep(**store, "job", 1, Values()).ok());
    ASSERT_TRUE(WriteTestStep(**store, "other", 1, Values()).ok());
  }
  // Opening makes new files of the database: each flip is of a copy of these.
  const std::string original = path + "/../original", current = path + "/jobs/job";
  std::filesystem::copy(current, original);
  int64_t lost = 0, broken = 0, gone = 0;
  std::set<std::string> kinds;
  for (const auto& entry : std::filesystem::directory_iterator(original)) {
    const std::string name = entry.path().filename();
    const auto size = static_cast<int64_t>(entry.file_size());
    // The file system's lock is of no content, and nobody reads options back.
    if (size == 0 || name == "LOCK" || absl::StartsWith(name, "OPTIONS")) continue;
    std::set<int64_t> offsets;
    for (int64_t i = 0; i < size; i += std::max<int64_t>(1, size / (IsLong() ? 60 : 13))) {
      offsets.insert(i);
    }
    // Index, properties and footer are at the end; keys and headers at the begin of blocks.
    for (int64_t i = std::max<int64_t>(0, size - 1500); i < size; i += IsLong() ? 13 : 97)
      offsets.insert(i);
    for (int64_t i = 0; i < std::min<int64_t>(300, size); i += IsLong() ? 7 : 71) offsets.insert(i);
    for (const int64_t offset : offsets) {
      SCOPED_TRACE(absl::StrCat(name, " byte ", offset, " of ", size));
      std::filesystem::remove_all(current);
      std::filesystem::copy(original, current);
      Flip(current + "/" + name, offset);
      auto store = TierStore::Open(Options(path, nullptr));
      ASSERT_TRUE(store.ok()) << store.status();
      const absl::Status other = CheckTestStep(**store, "other", 1, Values());
      EXPECT_TRUE(other.ok()) << other;
      const absl::Status status = CheckTestStep(**store, "job", 1, Values());
      if (const std::vector<TierBrokenJob> jobs = (*store)->broken(); !jobs.empty()) {
        ++broken;
        kinds.insert(name.substr(0, 1));
        EXPECT_EQ(jobs.size(), 1u);
        EXPECT_EQ(jobs[0].job, "job");
        EXPECT_EQ(jobs[0].status.code(), absl::StatusCode::kDataLoss) << jobs[0].status;
        EXPECT_THAT(std::string(jobs[0].status.message()), HasSubstr(current));
        EXPECT_THAT(StepNames(**store), ElementsAre("other 1"));
        EXPECT_EQ((*store)->BeginStep("job", 2, 0).status().code(), absl::StatusCode::kDataLoss);
        EXPECT_TRUE((*store)->DropJob("job").ok());
        EXPECT_THAT((*store)->broken(), IsEmpty());
        EXPECT_TRUE(WriteTestStep(**store, "job", 2, Values()).ok());
        EXPECT_TRUE(CheckTestStep(**store, "job", 2, Values()).ok());
      } else if (absl::IsNotFound(status)) {
        // The commit record is the last in the log, and looks as if it had not been written whole.
        ++gone;
        EXPECT_TRUE(absl::EndsWith(name, ".log"));
      } else if (!status.ok()) {
        ++lost;
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("job job step 1 unit "));
      }
    }
  }
  // Most bytes are of values.
  EXPECT_GT(lost, 30);
  EXPECT_GT(broken, 10);
  // Tables, MANIFEST and CURRENT.
  EXPECT_GE(kinds.size(), 3u);
  std::cout << lost << " lost, " << broken << " broken, " << gone << " gone\n";
}

}  // namespace
}  // namespace tessera
