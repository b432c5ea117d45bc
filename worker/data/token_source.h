// Tokens of one file, whatever its format, and the order in which a job reads them.
#ifndef TESSERA_WORKER_DATA_TOKEN_SOURCE_H_
#define TESSERA_WORKER_DATA_TOKEN_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// A memory-mapped token file, checked when it is opened. Immutable, thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t num_tokens() const = 0;
  // tokens[i] = token begin + i. REQUIRES: the range lies inside the file.
  virtual void Read(int64_t begin, absl::Span<int32_t> tokens) const = 0;
};

// Opens data_root/path. Field names of errors are under `field` ("spec.data.path").
// INVALID_ARGUMENT: a path that leaves the root, a header or size that is not the format's, fewer
// than min_tokens tokens, or an id >= vocab_size, naming file and position. NOT_FOUND: no such
// file.
absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokenSource(const std::string& data_root,
                                                             const std::string& path,
                                                             v1::DataFormat format,
                                                             int32_t vocab_size, int64_t min_tokens,
                                                             const std::string& field);

// Opens and checks both files a spec names. The errors of OpenTokenSource.
struct JobData {
  std::unique_ptr<TokenSource> train;
  std::unique_ptr<TokenSource> validation;  // null without evaluation
};
absl::StatusOr<JobData> OpenJobData(const v1::TrainingJobSpec& spec, const std::string& data_root);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_SOURCE_H_
