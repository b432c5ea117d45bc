// Test data beside the project's checkout, which a fresh clone lacks.
#ifndef TESSERA_WORKER_DATA_SHARED_DATA_H_
#define TESSERA_WORKER_DATA_SHARED_DATA_H_

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace tessera {

// ../shared/data/NAME, seen from where the workspace really lies: Bazel's runfiles have its
// WORKSPACE file as a symbolic link. Callers skip their test, naming the path, if it is not there.
inline std::filesystem::path SharedDataPath(const std::string& name) {
  const char* runfiles = std::getenv("TEST_SRCDIR");
  std::error_code error;
  std::filesystem::path workspace = runfiles == nullptr
                                        ? std::filesystem::path("WORKSPACE")
                                        : std::filesystem::path(runfiles) / "tessera" / "WORKSPACE";
  workspace = std::filesystem::canonical(workspace, error).parent_path();
  return workspace.parent_path() / "shared" / "data" / name;
}

}  // namespace tessera

#define TESSERA_SKIP_WITHOUT(needed)      \
  if (!std::filesystem::exists((needed))) \
  GTEST_SKIP() << "needs " << std::filesystem::path((needed)).string()

#endif  // TESSERA_WORKER_DATA_SHARED_DATA_H_
