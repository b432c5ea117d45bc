// Where the parameters lie in an llm.c checkpoint.
#ifndef TESSERA_WORKER_CHECKPOINT_LLMC_LAYOUT_H_
#define TESSERA_WORKER_CHECKPOINT_LLMC_LAYOUT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/numeric/int128.h"
#include "worker/model/model_config.h"

namespace tessera {

inline constexpr int64_t kLlmcHeaderBytes = 1024;  // int32[256]
inline constexpr int32_t kLlmcMagic = 20240326;
inline constexpr int32_t kLlmcFloat32Version = 3;
inline constexpr int32_t kLlmcBfloat16Version = 5;
inline constexpr int64_t kLlmcVocabMultiple = 128;

// vocab_size, rounded up as the file stores it.
int64_t LlmcPaddedVocab(int64_t vocab_size);

// Of all tensors; any sizes.
absl::uint128 LlmcNumElements(const ModelConfig& config);

struct LlmcTensor {
  int64_t offset_elements = 0;  // from the end of the header
  int64_t rows = 0;             // (rows, columns) in the file, without padding
  int64_t columns = 0;
  bool transposed = false;  // the parameter is (columns, rows)

  int64_t num_elements() const { return rows * columns; }
};

// By parameter. REQUIRES: GPT-2, and LlmcNumElements below 2^62.
std::map<std::string, LlmcTensor, std::less<>> LlmcTensors(const ModelConfig& config);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_LLMC_LAYOUT_H_
