// GPT-2 checkpoints of karpathy/llm.c (train_gpt2.py, write_model): docs/formats.md.
#ifndef TESSERA_WORKER_CHECKPOINT_LLMC_CHECKPOINT_H_
#define TESSERA_WORKER_CHECKPOINT_LLMC_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/checkpoint/weight_writer.h"

namespace tessera {

// By the file's first eight bytes; no safetensors file has them.
bool IsLlmcCheckpoint(absl::Span<const uint8_t> file);

// fp32 (version 3) and bf16 (version 5). Linear weights are (out, in) in the file, and transposed
// when they are read.
// INVALID_ARGUMENT, naming the header's word: magic, version, sizes that are out of range or do not
// fit together, a padded vocabulary that is not the next multiple of 128; another size than the
// header asks for; a row of the padding that is not 0.
absl::StatusOr<std::unique_ptr<WeightReader>> OpenLlmcCheckpoint(const std::string& path);

// dtype: kFloat32 or kBFloat16. Holds one linear weight in memory at a time.
// INVALID_ARGUMENT: the dtype, or a config that the format cannot say: not GPT-2, untied,
// intermediate_size other than 4 hidden_size, norm_epsilon other than 1e-5.
absl::Status WriteLlmcCheckpoint(const std::string& path, const ModelConfig& config, DType dtype,
                                 const ParameterSource& source);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_LLMC_CHECKPOINT_H_
