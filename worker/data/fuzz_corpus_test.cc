// Replays the corpus of the fuzz target that is linked with this file: FUZZ_CORPUS is its name, and
// the corpus is fuzz_corpus/NAME-*. `./dev fuzz` looks for new cases.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

TEST(FuzzCorpus, EveryCaseIsHandled) {
  const char* runfiles = std::getenv("TEST_SRCDIR");
  const std::filesystem::path folder =
      std::filesystem::path(runfiles == nullptr ? "." : std::string(runfiles) + "/tessera") /
      "worker/data/fuzz_corpus";
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find(FUZZ_CORPUS "-") != 0) continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
              0);
    ++cases;
  }
  EXPECT_GT(cases, 0) << folder;
}

}  // namespace
