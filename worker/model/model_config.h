// Sizes of a decoder-only transformer; plain values, defaults resolved.
#ifndef TESSERA_WORKER_MODEL_MODEL_CONFIG_H_
#define TESSERA_WORKER_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>

namespace tessera {

enum class ModelFamily : uint8_t {
  kGpt2,   // LayerNorm, learned positions, GELU, biases everywhere
  kLlama,  // RMSNorm, rotary positions, SwiGLU; Llama and Qwen2
};

// "llama3" scaling of rotary frequencies (Llama 3.1; transformers, modeling_rope_utils.py).
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 1;  // above low_freq_factor
  int64_t original_context_length = 0;

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kGpt2;
  int64_t vocab_size = 0;         // V
  int64_t context_length = 0;     // P; rows of GPT-2's position table
  int64_t layers = 0;             // L
  int64_t heads = 0;              // N; divides hidden_size where head_dim is 0
  int64_t kv_heads = 0;           // K; divides heads; 0 means heads. GPT-2: 0 or heads
  int64_t head_dim = 0;           // H; 0 means hidden_size / heads. GPT-2: 0
  int64_t hidden_size = 0;        // C
  int64_t intermediate_size = 0;  // F
  float norm_epsilon = 1e-5f;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;  // the head's matrix is the token embedding
  // Llama: biases of q, k and v, and none of the output, as Qwen2 has them. GPT-2 always has all.
  bool attention_bias = false;
  double rope_theta = 10000;  // Llama
  std::optional<RopeScaling> rope_scaling;

  int64_t head_size() const { return head_dim != 0 ? head_dim : hidden_size / heads; }
  int64_t num_kv_heads() const { return kv_heads != 0 ? kv_heads : heads; }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MODEL_CONFIG_H_
