#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/daemon/log.h"
#include "proto/daemon/process.h"

namespace tessera {
namespace {

TEST(Log, TextAndJsonCarryTheSameFields) {
  std::vector<std::string> lines;
  auto sink = [&](const std::string& line) { lines.push_back(line); };
  auto now = [] { return absl::FromUnixMillis(1500); };
  Logger text("worker", LogLevel::kInfo, LogFormat::kText, sink, now);
  Logger json("worker", LogLevel::kInfo, LogFormat::kJson, sink, now);
  text.Debug("not shown");
  text.Info("step done", {{"step", 3}, {"note", "a \"b\"\n"}});
  json.Warning("step done", {{"step", 3}, {"note", "a \"b\"\n"}});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "1970-01-01T00:00:01.500Z info worker: step done step=3 note=\"a \\\"b\\\"\\u000a\"\n");
  EXPECT_EQ(lines[1],
            "{\"ts\":\"1970-01-01T00:00:01.500Z\",\"level\":\"warning\",\"msg\":\"step done\","
            "\"component\":\"worker\",\"step\":\"3\",\"note\":\"a \\\"b\\\"\\u000a\"}\n");
}

TEST(Log, RepeatsAreCountedNotPrinted) {
  std::vector<std::string> lines;
  absl::Time now = absl::FromUnixSeconds(10);
  Logger log(
      "c", LogLevel::kInfo, LogFormat::kText, [&](const std::string& l) { lines.push_back(l); },
      [&] { return now; });
  for (int i = 0; i < Logger::kBurst + 5; ++i) log.Info("again");
  EXPECT_EQ(lines.size(), static_cast<size_t>(Logger::kBurst));
  now += absl::Seconds(1);
  log.Info("again");
  EXPECT_NE(lines.back().find("repeats=5"), std::string::npos);
}

TEST(Process, FlagsWithDashes) {
  std::string a = "prog", b = "--state-dir=/x-y", c = "-v", d = "--log-level";
  char* argv[] = {a.data(), b.data(), c.data(), d.data()};
  std::vector<std::string> storage;
  std::vector<char*> out = NormalizeFlags(4, argv, storage);
  EXPECT_STREQ(out[1], "--state_dir=/x-y");
  EXPECT_STREQ(out[2], "-v");
  EXPECT_STREQ(out[3], "--log_level");
}

TEST(Process, Bytes) {
  EXPECT_EQ(*ParseBytes("512MiB", "--m"), 512ll << 20);
  EXPECT_EQ(*ParseBytes("1.5GiB", "--m"), 3ll << 29);
  EXPECT_EQ(*ParseBytes("7", "--m"), 7);
  for (const char* bad : {"", "x", "-1", "0", "1e30", "nan", "5 MiB x"}) {
    EXPECT_FALSE(ParseBytes(bad, "--m").ok()) << bad;
  }
}

TEST(Process, UuidsDiffer) {
  EXPECT_NE(NewUuid(), NewUuid());
  EXPECT_EQ(NewUuid().size(), 36u);
}

TEST(LockFolder, OneProcessAtATime) {
  std::string folder = testing::TempDir() + "/lockXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_EQ(LockFolder(folder, "--state-dir"), absl::OkStatus());
  EXPECT_EQ(LockFolder(folder, "--state-dir"),
            absl::UnavailableError(absl::StrCat("--state-dir: ", folder,
                                                ": is another process's (pid ", getpid(), ")")));
  EXPECT_EQ(LockFolder(folder + "/none", "--state-dir").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tessera
