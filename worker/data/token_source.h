// Tokens of one file, whatever its format, and the order in which a job reads them.
#ifndef TESSERA_WORKER_DATA_TOKEN_SOURCE_H_
#define TESSERA_WORKER_DATA_TOKEN_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/data/tokenizer.h"

namespace tessera {

// The tokens of a file, checked when it is opened. Immutable, thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t num_tokens() const = 0;
  // tokens[i] = token begin + i. REQUIRES: the range lies inside the file.
  virtual void Read(int64_t begin, absl::Span<int32_t> tokens) const = 0;
};

// What to open, and what its tokens must be.
struct TokenSourceOptions {
  std::string data_root;
  std::string path;  // under data_root; of megatron the common prefix of the .idx and the .bin
  v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED;
  std::string text_field = "text";       // of jsonl
  const Tokenizer* tokenizer = nullptr;  // of text and jsonl; null: bytes are ids
  int32_t vocab_size = 0;
  int64_t min_tokens = 1;
  std::string field;  // under which errors name the path: "spec.data.path"
  // Asked while text is encoded, several times a second; an error ends it with that error. May be
  // empty.
  std::function<absl::Status()> check_stop;
};

// Files of tokens are mapped. Text with a tokenizer, and JSON lines, are encoded here, into host
// memory of 1, 2 or 4 bytes a token; a JSON line's document is followed by the tokenizer's end of
// text, if it has one. Special tokens in text are text.
//
// INVALID_ARGUMENT: a path that leaves the root, a header or size that is not the format's, a line
// that is no document, fewer than min_tokens tokens, or an id >= vocab_size, naming file and
// position. NOT_FOUND: no such file.
absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokenSource(const TokenSourceOptions& options);

// Both files a spec names.
struct JobData {
  std::unique_ptr<TokenSource> train;
  std::unique_ptr<TokenSource> validation;  // null without evaluation
};
// Opens and checks them, with the spec's tokenizer. The errors of OpenTokenSource, and those of
// LoadTokenizer under "spec.data.tokenizer". check_stop as in TokenSourceOptions.
absl::StatusOr<JobData> OpenJobData(const v1::TrainingJobSpec& spec, const std::string& data_root,
                                    std::function<absl::Status()> check_stop = nullptr);

// As OpenJobData, but of text that has to be encoded only the first text_limit_bytes are looked
// at, of JSON lines those that are whole, and nothing is kept: a check of bounded time before a job
// is created.
inline constexpr int64_t kCheckedTextBytes = int64_t{32} << 20;
absl::Status CheckJobData(const v1::TrainingJobSpec& spec, const std::string& data_root,
                          int64_t text_limit_bytes = kCheckedTextBytes);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_SOURCE_H_
