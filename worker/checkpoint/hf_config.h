// config.json as Hugging Face's transformers writes it, to a model's sizes and options and back.
//
// Every key is either understood, or known not to change what the model computes, or refused by
// name: docs/formats.md. Absent keys have the defaults of transformers' configuration classes.
#ifndef TESSERA_WORKER_CHECKPOINT_HF_CONFIG_H_
#define TESSERA_WORKER_CHECKPOINT_HF_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/model/model_config.h"

namespace tessera {

inline constexpr char kHfConfigFileName[] = "config.json";

struct HfConfig {
  ModelConfig model;  // kv_heads and intermediate_size resolved
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;

  friend bool operator==(const HfConfig&, const HfConfig&) = default;
};

// model_type gpt2, llama (also SmolLM2, TinyLlama) and qwen2.
// INVALID_ARGUMENT: bad JSON, a value of the wrong kind or out of range, sizes that do not fit
// together. UNIMPLEMENTED: another model_type or architecture, an option that changes the
// mathematics and is not supported, an unknown key. Each names the key and its value.
absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text);

// torch_dtype: "float32", "bfloat16" or "float16". A Llama with attention_bias is a qwen2.
// INVALID_ARGUMENT: CheckModelConfig fails.
absl::StatusOr<std::string> FormatHfConfig(const HfConfig& config, absl::string_view torch_dtype);

// Sizes in range (at most 2^30, layers at most 16384, so that no number of elements overflows) and
// fitting together. INVALID_ARGUMENT names the field of ModelConfig.
absl::Status CheckModelConfig(const ModelConfig& config);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_HF_CONFIG_H_
