// A model as its configuration has it, as far as plans need it.
#ifndef TESSERA_PLAN_MODEL_SIZES_H_
#define TESSERA_PLAN_MODEL_SIZES_H_

#include <cstdint>

#include "absl/numeric/int128.h"

namespace tessera::plan {

// Sizes of absurd models overflow int64 on the way.
using BigSize = absl::int128;

struct ModelSizes {
  bool is_llama = false;  // else gpt2
  int64_t vocab_size = 1;
  int64_t context_length = 1;
  int64_t layers = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_size = 1;
  int64_t hidden_size = 1;
  int64_t intermediate_size = 1;
  bool tied_embeddings = false;
  bool attention_bias = false;
};

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_MODEL_SIZES_H_
