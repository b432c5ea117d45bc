// From a prompt to new tokens, one after another.
#ifndef TESSERA_WORKER_GENERATION_TEXT_GENERATION_H_
#define TESSERA_WORKER_GENERATION_TEXT_GENERATION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/tessera/v1/generation.pb.h"
#include "worker/generation/token_picker.h"
#include "worker/model/generator.h"
#include "worker/model/model_config.h"

namespace tessera {

struct TextGenerationOptions {
  std::vector<int32_t> prompt;
  int64_t max_new_tokens = 0;
  TokenChoice choice;
  std::vector<int32_t> stop_tokens;

  // Tokens of the whole sequence.
  int64_t capacity() const { return static_cast<int64_t>(prompt.size()) + max_new_tokens; }
};

// What the request asks of a model. prompt: the request's, as tokens. REQUIRES: the rules of
// generation.proto that need no model hold. INVALID_ARGUMENT names the field, its value and the
// rule: an empty prompt, a token that is not in the vocabulary, a prompt that leaves no room in the
// context, more new tokens than it leaves.
absl::StatusOr<TextGenerationOptions> MakeTextGenerationOptions(const v1::GenerateRequest& request,
                                                                std::vector<int32_t> prompt,
                                                                const ModelConfig& config);

// Generates with a generator that has no sequence yet, of at least options.capacity(). on_token is
// called with each new token; check_stop between short pieces of work.
// An error of either ends the generation with it.
absl::StatusOr<v1::FinishReason> GenerateText(
    Generator& generator, const TextGenerationOptions& options,
    const std::function<absl::Status()>& check_stop,
    const std::function<absl::Status(int32_t token)>& on_token);

}  // namespace tessera

#endif  // TESSERA_WORKER_GENERATION_TEXT_GENERATION_H_
