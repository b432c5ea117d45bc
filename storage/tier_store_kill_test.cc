// A process that writes step after step is killed, at random moments or in the middle of an
// operation on a file; what it leaves is exactly the state of one of its steps.
// TESSERA_LONG_TESTS=1: 200 kills of each kind, else 20. TESSERA_KILL_SEED repeats a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/fault_file_system.h"
#include "storage/tier_store.h"
#include "storage/tier_test_values.h"

namespace tessera {
namespace {

using testing::IsEmpty;

int Kills() { return std::getenv("TESSERA_LONG_TESTS") != nullptr ? 200 : 20; }

uint32_t Seed() {
  const char* given = std::getenv("TESSERA_KILL_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                         : std::random_device()();
  std::cout << "TESSERA_KILL_SEED=" << seed << std::endl;
  return seed;
}

// What a writer has been told, seen by its parent.
struct Progress {
  std::atomic<int64_t> committed;  // last step whose Commit returned OK
  std::atomic<int64_t> dropping;   // last step whose DropStep was called
  std::atomic<int64_t> dropped;    // and returned OK
  std::atomic<bool> has_failed;
};

class KillTest : public testing::Test {
 protected:
  KillTest()
      : progress_(static_cast<Progress*>(mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        path_(NewTestFolder()) {}
  ~KillTest() override { munmap(progress_, sizeof(Progress)); }

  TierStoreOptions Options() const {
    TierStoreOptions options;
    options.path = path_;
    options.write_depth = 3;
    options.min_file_bytes = 128 << 10;
    options.file_bytes = 256 << 10;
    return options;
  }
  // In the child: steps of two jobs in turn, each of which keeps its last.
  [[noreturn]] void WriteForever(int64_t step, std::shared_ptr<FaultPlan> plan) {
    TierStoreOptions options = Options();
    options.file_system = NewFaultFileSystem(std::move(plan));
    auto store = TierStore::Open(options);
    for (; store.ok(); ++step) {
      if (!WriteTestStep(**store, Job(step), step, values_).ok()) break;
      progress_->committed = step;
      if (step < 2) continue;
      progress_->dropping = step - 2;
      if (!(*store)->DropStep(Job(step), step - 2).ok()) break;
      progress_->dropped = step - 2;
    }
    progress_->has_failed = true;
    _exit(1);
  }
  static std::string Job(int64_t step) { return step % 2 == 0 ? "even" : "odd"; }

  // What is there is what the dead process was told, or one operation further.
  int64_t ExpectCommittedState() {
    EXPECT_FALSE(progress_->has_failed);
    auto store = TierStore::Open(Options());
    if (!store.ok()) {
      ADD_FAILURE() << store.status();
      return 0;
    }
    std::set<int64_t> there;
    for (const TierStep& step : (*store)->steps()) {
      there.insert(step.step);
      const absl::Status status = CheckTestStep(**store, step.job, step.step, values_);
      EXPECT_TRUE(status.ok()) << status;
    }
    const int64_t committed = progress_->committed;
    int64_t last = committed;
    if (there.contains(committed + 1)) last = committed + 1;
    EXPECT_TRUE(there.empty() || *there.rbegin() == last) << *there.rbegin() << " of " << last;
    for (int64_t step = std::max<int64_t>(0, progress_->dropped + 1); step <= committed; ++step) {
      EXPECT_TRUE(step == progress_->dropping || there.contains(step)) << step;
    }
    EXPECT_TRUE(there.empty() || *there.begin() > progress_->dropped) << *there.begin();
    // The next process drops nothing that it has not written.
    for (const int64_t step : there) {
      EXPECT_TRUE(step > last - 2 || (*store)->DropStep(Job(step), step).ok()) << step;
    }
    *store = nullptr;
    const auto stray = StrayFiles(path_);
    if (!stray.ok()) {
      ADD_FAILURE() << stray.status();
    } else {
      EXPECT_THAT(*stray, IsEmpty());
    }
    return last;
  }
  // Starts a writer at `step`, kills it as `plan` says or after `delay`, and checks what it left.
  // Returns the last step that is there.
  int64_t RunAndKill(int64_t step, std::shared_ptr<FaultPlan> plan,
                     std::chrono::microseconds delay) {
    progress_->committed = step - 1;
    progress_->dropping = progress_->dropped = step - 3;
    const pid_t child = fork();
    if (child == 0) WriteForever(step, std::move(plan));
    if (delay.count() > 0) {
      std::this_thread::sleep_for(delay);
      kill(child, SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    return ExpectCommittedState();
  }

  Progress* const progress_;
  const std::string path_;
  const std::vector<TestValue> values_ = TestValues(5, 100 << 10);
};

TEST_F(KillTest, AtRandomMoments) {
  std::mt19937 random(Seed());
  int64_t step = 0;
  for (int i = 0; i < Kills() && !HasFailure(); ++i) {
    const std::chrono::microseconds delay(5000 + random() % 150000);
    SCOPED_TRACE(absl::StrCat("kill ", i, " after ", delay.count(), " us"));
    step = RunAndKill(step, std::make_shared<FaultPlan>(), delay) + 1;
  }
  EXPECT_GT(step, 0) << "no step was ever committed";
}

TEST_F(KillTest, InsideOperations) {
  std::mt19937 random(Seed());
  int64_t step = 0;
  for (int i = 0; i < Kills() && !HasFailure(); ++i) {
    auto plan = std::make_shared<FaultPlan>();
    // Of opening (about 15 operations) and of some steps (about 60 each).
    const int64_t nth = 1 + random() % 250;
    SCOPED_TRACE(absl::StrCat("kill ", i, " in operation ", nth));
    plan->FailAt(nth, FaultKind::kKill);
    step = RunAndKill(step, plan, std::chrono::microseconds(0)) + 1;
  }
  EXPECT_GT(step, 0) << "no step was ever committed";
}

}  // namespace
}  // namespace tessera
