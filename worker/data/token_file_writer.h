// Writes token files.
#ifndef TESSERA_WORKER_DATA_TOKEN_FILE_WRITER_H_
#define TESSERA_WORKER_DATA_TOKEN_FILE_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// One file, written under another name beside its own until it is complete. Without Finish nothing
// is left of it, and a file that had its name stays. For one thread.
class TokenFileWriter {
 public:
  // format: nanogpt (uint16) or llmc (uint16 where every id of the vocabulary fits, else uint32).
  // INVALID_ARGUMENT for another; NOT_FOUND without the folder; PERMISSION_DENIED; UNAVAILABLE for
  // other errors of the system, here and below.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(const std::string& path,
                                                                 v1::DataFormat format,
                                                                 int64_t vocab_size);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // OUT_OF_RANGE, naming the token: an id that the element type does not hold, or more tokens than
  // the header can count (2^31 - 1).
  absl::Status Add(absl::Span<const int32_t> ids);
  // Completes the header, brings everything to the disk and gives the file its name.
  absl::Status Finish();

  int64_t num_tokens() const { return num_tokens_; }
  const std::string& path() const { return path_; }

 private:
  TokenFileWriter(std::string path, std::string temporary, int fd);
  absl::Status Flush();
  absl::Status WriteAll(const uint8_t* data, size_t size, int64_t offset);
  absl::Status SystemError(int error, const char* what) const;

  const std::string path_;
  const std::string temporary_;
  int fd_;  // -1 once finished
  bool has_header_ = false;
  size_t item_size_bytes_ = 2;
  int64_t num_tokens_ = 0;
  int64_t written_bytes_ = 0;
  std::vector<uint8_t> buffer_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_FILE_WRITER_H_
