// Finding and running tessera-tokenize, with a script in its place.
#include "cli/tokenize_command.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/exit_code.h"

namespace tessera {
namespace {

class TokenizeCommandTest : public testing::Test {
 protected:
  TokenizeCommandTest() {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    folder_ = testing::TempDir() + "/tokenize_command";
    std::filesystem::create_directories(folder_);
    setenv("PATH", folder_.c_str(), 1);
  }
  ~TokenizeCommandTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  char input_[10] = "--input=x";
  char help_[7] = "--help";
  char* arguments_[3] = {input_, help_, nullptr};
};

TEST_F(TokenizeCommandTest, RunsTheProgramOfThePathWithTheSameArguments) {
  const std::string program = folder_ + "/tessera-tokenize";
  std::ofstream(program) << "#!/bin/sh\necho \"$# $1 $2\" >&2\nexit 7\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  EXPECT_EXIT(exit(RunTokenize(arguments_)), testing::ExitedWithCode(7), "2 --input=x --help");
}

TEST_F(TokenizeCommandTest, SaysWhatIsMissing) {
  EXPECT_EXIT(exit(RunTokenize(arguments_)), testing::ExitedWithCode(kCliPrecondition),
              "NOT_FOUND: tessera-tokenize is neither in .* nor in PATH");
}

}  // namespace
}  // namespace tessera
