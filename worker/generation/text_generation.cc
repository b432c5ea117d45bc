#include "worker/generation/text_generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

constexpr int64_t kDefaultNewTokens = 128;
// A prompt is taken in by pieces of this, so that a long one can be stopped.
constexpr size_t kPieceTokens = 256;

}  // namespace

absl::StatusOr<TextGenerationOptions> MakeTextGenerationOptions(const v1::GenerateRequest& request,
                                                                std::vector<int32_t> prompt,
                                                                const ModelConfig& config) {
  if (prompt.empty()) return InvalidField("prompt", "", "must be at least one token");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < config.vocab_size) continue;
    return InvalidField(
        absl::StrCat("prompt[", i, "]"), absl::StrCat(prompt[i]),
        absl::StrCat("must be 0 .. ", config.vocab_size - 1, ", the model's vocabulary"));
  }
  const int64_t room = config.context_length - static_cast<int64_t>(prompt.size());
  if (room < 1) {
    return InvalidField(
        "prompt", absl::StrCat(prompt.size(), " tokens"),
        absl::StrCat("must be fewer than ", config.context_length, ", the model's context length"));
  }
  if (request.has_max_new_tokens() && request.max_new_tokens() > room) {
    return InvalidField(
        "max_new_tokens", absl::StrCat(request.max_new_tokens()),
        absl::StrCat("must be at most ", room, ", which a prompt of ", prompt.size(),
                     " tokens leaves of the context length of ", config.context_length));
  }
  for (const int32_t token : request.stop_tokens()) {
    if (token < config.vocab_size) continue;
    return InvalidField(
        "stop_tokens", absl::StrCat(token),
        absl::StrCat("must be 0 .. ", config.vocab_size - 1, ", the model's vocabulary"));
  }
  TextGenerationOptions options;
  options.prompt = std::move(prompt);
  options.max_new_tokens =
      request.has_max_new_tokens() ? request.max_new_tokens() : std::min(kDefaultNewTokens, room);
  if (request.has_temperature()) options.choice.temperature = request.temperature();
  if (request.has_top_p()) options.choice.top_p = request.top_p();
  options.choice.top_k = request.top_k();
  options.choice.seed = request.seed();
  options.stop_tokens.assign(request.stop_tokens().begin(), request.stop_tokens().end());
  return options;
}

absl::StatusOr<v1::FinishReason> GenerateText(
    Generator& generator, const TextGenerationOptions& options,
    const std::function<absl::Status()>& check_stop,
    const std::function<absl::Status(int32_t token)>& on_token) {
  absl::Span<const int32_t> next = options.prompt;
  for (; next.size() > kPieceTokens; next.remove_prefix(kPieceTokens)) {
    TESSERA_RETURN_IF_ERROR(check_stop());
    TESSERA_RETURN_IF_ERROR(generator.Append(next.first(kPieceTokens)).status());
  }
  int32_t token = 0;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    TESSERA_RETURN_IF_ERROR(check_stop());
    TESSERA_ASSIGN_OR_RETURN(const absl::Span<const float> logits, generator.Append(next));
    token = PickToken(logits, options.choice, i);
    TESSERA_RETURN_IF_ERROR(on_token(token));
    const auto& stops = options.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      return v1::FINISH_REASON_STOP_TOKEN;
    }
    next = absl::MakeConstSpan(&token, 1);
  }
  return v1::FINISH_REASON_LENGTH;
}

}  // namespace tessera
