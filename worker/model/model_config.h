// Sizes of a decoder-only transformer; plain values, defaults resolved.
#ifndef TESSERA_WORKER_MODEL_MODEL_CONFIG_H_
#define TESSERA_WORKER_MODEL_MODEL_CONFIG_H_

#include <cstdint>

namespace tessera {

struct ModelConfig {
  int64_t vocab_size = 0;         // V
  int64_t context_length = 0;     // P, rows of the position table
  int64_t layers = 0;             // L
  int64_t heads = 0;              // N; divides hidden_size
  int64_t hidden_size = 0;        // C
  int64_t intermediate_size = 0;  // F
  float layer_norm_epsilon = 1e-5f;
  double initializer_range = 0.02;

  int64_t head_size() const { return hidden_size / heads; }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MODEL_CONFIG_H_
