#include "worker/trainer/mesh_sampler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/generation/token_picker.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<MeshSampler>> MeshSampler::Create(const TrainingConfig& config,
                                                                 ParameterStore& store,
                                                                 const Generator::Groups& groups,
                                                                 Communicator& tp_group,
                                                                 Device& device, Stream& stream) {
  std::unique_ptr<MeshSampler> sampler(new MeshSampler(config));
  // Models of their own: one token has no rows to share out, as sequence parallelism would.
  TensorParallelLayout layout = config.part.tp;
  layout.sequence_parallel = false;
  std::vector<const Transformer*> chunks;
  for (int chunk = 0; chunk < static_cast<int>(config.part.chunks.size()); ++chunk) {
    sampler->models_.push_back(std::make_unique<Transformer>(
        config.model, config.part, chunk, store, TensorParallel(layout, tp_group)));
    chunks.push_back(sampler->models_.back().get());
  }
  TESSERA_ASSIGN_OR_RETURN(
      sampler->generator_,
      Generator::Create(chunks, groups, config.dtype, config.sequence_length, device, stream));
  return sampler;
}

absl::StatusOr<std::string> MeshSampler::Sample(const std::function<absl::Status()>& check_stop) {
  std::vector<int32_t> ids;
  for (const char byte : options_.prompt) {
    ids.push_back(static_cast<unsigned char>(byte));
    if (ids.back() >= vocab_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "spec.sample.prompt: ", ids.back(), ": must be bytes below spec.model.vocab_size"));
    }
  }
  if (ids.empty()) return absl::InvalidArgumentError("spec.sample.prompt: \"\": required");
  const TokenChoice choice{options_.temperature, options_.top_k, options_.top_p, options_.seed};
  std::string text;
  for (int64_t i = 0; i < options_.max_new_tokens; ++i) {
    TESSERA_RETURN_IF_ERROR(check_stop());
    absl::Span<const int32_t> next = absl::MakeConstSpan(ids).last(1);
    if (i == 0 || generator_->length() == time_) {
      // At the start the prompt's end, and when the sequence is full its later half.
      generator_->Restart();
      const int64_t kept = i == 0 ? time_ : (time_ + 1) / 2;
      next = absl::MakeConstSpan(ids).last(std::min<int64_t>(kept, ids.size()));
    }
    TESSERA_ASSIGN_OR_RETURN(const absl::Span<const float> logits, generator_->Append(next));
    // Ids beyond a byte are not text.
    const absl::Span<const float> bytes = logits.subspan(0, std::min<int64_t>(vocab_, 256));
    ids.push_back(PickToken(bytes, choice, i));
    text.push_back(static_cast<char>(ids.back()));
  }
  return text;
}

}  // namespace tessera
