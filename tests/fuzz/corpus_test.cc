// Replays a folder of inputs, the seeds and what fuzzing has found, one case a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

class CorpusTest : public testing::Test {
 public:
  explicit CorpusTest(std::string path) : path_(std::move(path)) {}
  void TestBody() override {
    std::ifstream file(path_, std::ios::binary);
    ASSERT_TRUE(file.good()) << path_;
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    // A copy of exactly the size, so that the address sanitizer sees reads beyond it.
    const std::vector<uint8_t> bytes(content.begin(), content.end());
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }

 private:
  const std::string path_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      paths.push_back(entry.path().string());
    }
  }
  if (paths.empty()) {
    std::fprintf(stderr, "usage: corpus_test FOLDER...; no inputs found\n");
    return 1;
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    testing::RegisterTest("Corpus", std::filesystem::path(path).filename().c_str(), nullptr,
                          nullptr, __FILE__, __LINE__,
                          [path]() -> testing::Test* { return new CorpusTest(path); });
  }
  return RUN_ALL_TESTS();
}
