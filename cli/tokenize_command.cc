#include "cli/tokenize_command.h"

#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"

namespace tessera {
namespace {

constexpr char kProgram[] = "tessera-tokenize";

// The folder of this program's file, links resolved; empty if the system does not say.
std::string ProgramFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : self.parent_path().string();
}

}  // namespace

int RunTokenize(char** argv) {
  std::vector<char*> arguments = {const_cast<char*>(kProgram)};
  do {
    arguments.push_back(*argv);
  } while (*argv++ != nullptr);
  const std::string folder = ProgramFolder();
  const std::string beside = absl::StrCat(folder, "/", kProgram);
  if (!folder.empty() && access(beside.c_str(), X_OK) == 0) {
    execv(beside.c_str(), arguments.data());
  } else {
    execvp(kProgram, arguments.data());
  }
  if (errno == ENOENT) {
    fprintf(stderr,
            "error: NOT_FOUND: %s is neither in %s nor in PATH\n"
            "hint: install it beside tessera, or add its folder to PATH\n",
            kProgram, folder.empty() ? "this program's folder" : folder.c_str());
    return kCliPrecondition;
  }
  fprintf(stderr, "error: UNAVAILABLE: %s cannot be run: %s\n", kProgram, std::strerror(errno));
  return kCliFailed;
}

}  // namespace tessera
