// Byte layouts of token files: pure functions over a file's bytes. See docs/formats.md.
#ifndef TESSERA_WORKER_DATA_TOKEN_FORMAT_H_
#define TESSERA_WORKER_DATA_TOKEN_FORMAT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// Element types of token files, little-endian.
enum class TokenType { kU8, kI8, kI16, kU16, kI32, kU32, kI64 };
int SizeBytes(TokenType type);

struct TokenLayout {
  int64_t data_offset_bytes = 0;
  TokenType type = TokenType::kU8;
  int64_t num_tokens = 0;
};

inline constexpr int64_t kLlmcHeaderBytes = 1024;
inline constexpr int32_t kLlmcGpt2Magic = 20240520;  // uint16 ids
inline constexpr int32_t kLlmcGpt2Version = 1;
inline constexpr int32_t kLlmcLlama3Magic = 20240801;  // uint32 ids
inline constexpr int32_t kLlmcLlama3Version = 7;

// Of files that are nothing but tokens behind a header. Text: every byte is a token. nanoGPT
// (karpathy/nanoGPT): uint16. llm.c (karpathy/llm.c, llmc/dataloader.h): int32[256] header, then
// uint16 or uint32. INVALID_ARGUMENT says what in the header or the size is not the format's, and
// at which byte.
absl::StatusOr<TokenLayout> ParseTokenLayout(v1::DataFormat format, absl::Span<const uint8_t> file);

// Of Megatron's pair of files (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py): the
// .bin is the concatenated sequences, the .idx says their type and lengths. INVALID_ARGUMENT says
// what in the index contradicts the format, itself or the .bin's size, and at which byte.
absl::StatusOr<TokenLayout> ParseMegatronIndex(absl::Span<const uint8_t> index,
                                               int64_t bin_size_bytes);

// tokens[i] = token begin + i. REQUIRES: in range, the layout fits the file, and ids fit int32.
void ReadTokens(const TokenLayout& layout, absl::Span<const uint8_t> file, int64_t begin,
                absl::Span<int32_t> tokens);

// The first token whose id is not in 0 .. vocab_size - 1; index -1 if there is none.
struct IdViolation {
  int64_t index = -1;
  int64_t byte_offset = 0;
  int64_t id = 0;
};
IdViolation FindIdOutside(const TokenLayout& layout, absl::Span<const uint8_t> file,
                          int64_t vocab_size);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_FORMAT_H_
