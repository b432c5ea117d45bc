// A data root with files, for tests.
#ifndef TESSERA_WORKER_DATA_TOKEN_SOURCE_TESTING_H_
#define TESSERA_WORKER_DATA_TOKEN_SOURCE_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/token_source.h"

namespace tessera {

class TokenSourceTest : public testing::Test {
 protected:
  TokenSourceTest() {
    root_ = testing::TempDir() + "/dataXXXXXX";
    if (mkdtemp(root_.data()) == nullptr) abort();
  }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(root_ + "/" + name, std::ios::binary) << bytes;
  }
  absl::StatusOr<std::unique_ptr<TokenSource>> Open(const std::string& path, v1::DataFormat format,
                                                    int32_t vocab_size = 50257,
                                                    int64_t min_tokens = 2) {
    TokenSourceOptions options;
    options.data_root = root_;
    options.path = path;
    options.format = format;
    options.vocab_size = vocab_size;
    options.min_tokens = min_tokens;
    options.field = "spec.data.path";
    return OpenTokenSource(options);
  }
  std::string root_;
};

inline std::vector<int32_t> AllTokens(const TokenSource& source) {
  std::vector<int32_t> tokens(source.num_tokens());
  source.Read(0, absl::MakeSpan(tokens));
  return tokens;
}

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_SOURCE_TESTING_H_
