// Byte layouts of token files: pure functions over a file's bytes. See docs/formats.md.
#ifndef TESSERA_WORKER_DATA_TOKEN_FORMAT_H_
#define TESSERA_WORKER_DATA_TOKEN_FORMAT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

struct TokenLayout {
  int64_t data_offset_bytes = 0;
  int item_size_bytes = 1;  // 1, 2 or 4; unsigned, little-endian
  int64_t num_tokens = 0;
};

// Text: every byte is a token. nanoGPT (karpathy/nanoGPT): uint16. llm.c (karpathy/llm.c,
// llmc/dataloader.h): int32[256] header, then uint16 or uint32. INVALID_ARGUMENT says what in the
// header or the size is not the format's, and at which byte.
absl::StatusOr<TokenLayout> ParseTokenLayout(v1::DataFormat format, absl::Span<const uint8_t> file);

// tokens[i] = token begin + i. REQUIRES: in range, and the layout fits the file.
void ReadTokens(const TokenLayout& layout, absl::Span<const uint8_t> file, int64_t begin,
                absl::Span<int32_t> tokens);

// The first token whose id is not below vocab_size; index -1 if there is none.
struct IdViolation {
  int64_t index = -1;
  int64_t byte_offset = 0;
  int64_t id = 0;
};
IdViolation FindIdAtLeast(const TokenLayout& layout, absl::Span<const uint8_t> file,
                          int64_t vocab_size);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_FORMAT_H_
