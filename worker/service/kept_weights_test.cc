#include "worker/service/kept_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace tessera {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class KeptWeightsTest : public testing::Test {
 protected:
  KeptWeightsTest() {
    root_ = testing::TempDir() + "/keptXXXXXX";
    if (mkdtemp(root_.data()) == nullptr) abort();
    folder_ = root_ + "/weights";
  }

  static absl::Status WriteFile(const std::string& folder) {
    fs::create_directory(folder);
    std::ofstream(folder + "/file") << folder;
    return absl::OkStatus();
  }

  // Keeps, as long ago as `age` says.
  void Keep(KeptWeights& kept, const std::string& uid, int age) const {
    ASSERT_EQ(kept.Keep(uid, WriteFile), absl::OkStatus());
    fs::last_write_time(folder_ + "/" + uid,
                        fs::file_time_type::clock::now() - std::chrono::seconds(age));
  }

  std::string root_, folder_;
};

TEST_F(KeptWeightsTest, KeepsTheLastJobs) {
  KeptWeights kept(folder_, 2);
  Keep(kept, "first", 30);
  Keep(kept, "second", 20);
  EXPECT_EQ(*kept.Find("first"), folder_ + "/first");
  Keep(kept, "third", 10);
  EXPECT_THAT(
      kept.Find("first").status().ToString(),
      HasSubstr("NOT_FOUND: its weights are not kept (those of the last 2 that succeeded are)"));
  EXPECT_TRUE(fs::exists(*kept.Find("second") + "/file"));
  EXPECT_TRUE(fs::exists(*kept.Find("third") + "/file"));
}

TEST_F(KeptWeightsTest, AnotherProcessFindsThem) {
  {
    KeptWeights kept(folder_, 2);
    Keep(kept, "job", 0);
  }
  WriteFile(folder_ + "/other.part").IgnoreError();
  EXPECT_TRUE(KeptWeights(folder_, 2).Find("job").ok());
  EXPECT_FALSE(fs::exists(folder_ + "/other.part")) << "half written by a process that is gone";
}

TEST_F(KeptWeightsTest, AnErrorLeavesNothingBehind) {
  KeptWeights kept(folder_, 2);
  EXPECT_EQ(kept.Keep("job",
                      [](const std::string& folder) {
                        WriteFile(folder).IgnoreError();
                        return absl::ResourceExhaustedError("disk full");
                      }),
            absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(fs::is_empty(folder_));
  std::ofstream(root_ + "/a file") << "x";
  EXPECT_THAT(KeptWeights(root_ + "/a file/x", 2).Keep("job", WriteFile).ToString(),
              HasSubstr("UNAVAILABLE: " + root_ + "/a file/x: "));
}

TEST_F(KeptWeightsTest, AnotherProcessMayKeepFewer) {
  KeptWeights kept(folder_, 2);
  Keep(kept, "first", 30);
  Keep(kept, "second", 20);
  KeptWeights fewer(folder_, 1);
  EXPECT_FALSE(fewer.Find("first").ok());
  EXPECT_TRUE(fewer.Find("second").ok());
}

TEST_F(KeptWeightsTest, MayKeepNone) {
  KeptWeights kept(folder_, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(kept.Keep("job", WriteFile)));
  EXPECT_TRUE(absl::IsNotFound(kept.Find("job").status()));
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace tessera
