// Chooses the next token from logits: a pure function.
#ifndef TESSERA_WORKER_GENERATION_TOKEN_PICKER_H_
#define TESSERA_WORKER_GENERATION_TOKEN_PICKER_H_

#include <cstdint>

#include "absl/types/span.h"

namespace tessera {

struct TokenChoice {
  double temperature = 1;  // 0: the likeliest, lowest id first
  int64_t top_k = 0;       // only the k likeliest, ties by lowest id; 0: all
  // Of those, only the fewest likeliest whose probabilities, at this temperature, add up to at
  // least top_p (nucleus sampling: Holtzman et al., arXiv 1904.09751); 1: all.
  double top_p = 1;
  uint64_t seed = 0;
};

// Token drawn from softmax(logits / temperature). The draw is a function of (seed, position) alone.
// REQUIRES: logits not empty.
int32_t PickToken(absl::Span<const float> logits, const TokenChoice& choice, int64_t position);

}  // namespace tessera

#endif  // TESSERA_WORKER_GENERATION_TOKEN_PICKER_H_
