#include "worker/model/generator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

// Tokens of a prompt that go through the model together: enough for products to pay.
constexpr int64_t kPieceTokens = 64;

absl::StatusOr<TransformerActivations> MakeActivations(const ModelConfig& config, int64_t time,
                                                       const KvCache& cache, Device& device) {
  ActivationOptions options;
  options.batch = 1;
  options.time = time;
  options.dtype = cache.buffers.dtype();
  options.cached = cache.capacity;
  return TransformerActivations::Create(config, options, device);
}

}  // namespace

Generator::Generator(const Transformer& model, KvCache cache, Stream& stream)
    : model_(model),
      stream_(stream),
      cache_(std::move(cache)),
      logits_(model.config().vocab_size) {}

absl::StatusOr<std::unique_ptr<Generator>> Generator::Create(const Transformer& model, DType dtype,
                                                             int64_t capacity, Device& device,
                                                             Stream& stream) {
  const ModelConfig& config = model.config();
  if (capacity < 1 || capacity > config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("a sequence of ", capacity,
                                                   " tokens: must be 1 .. ", config.context_length,
                                                   ", the model's context length"));
  }
  TESSERA_ASSIGN_OR_RETURN(KvCache cache, KvCache::Create(config, capacity, dtype, device));
  std::unique_ptr<Generator> generator(new Generator(model, std::move(cache), stream));
  TESSERA_ASSIGN_OR_RETURN(TransformerActivations one,
                           MakeActivations(config, 1, generator->cache_, device));
  generator->one_.emplace(std::move(one));
  if (capacity > kPieceTokens) {
    TESSERA_ASSIGN_OR_RETURN(TransformerActivations many,
                             MakeActivations(config, kPieceTokens, generator->cache_, device));
    generator->many_.emplace(std::move(many));
  }
  return generator;
}

absl::Status Generator::Check(absl::Span<const int32_t> tokens) const {
  if (tokens.empty()) return absl::InvalidArgumentError("no tokens: must be at least one");
  const int64_t room = capacity() - length();
  if (static_cast<int64_t>(tokens.size()) > room) {
    return absl::InvalidArgumentError(absl::StrCat(tokens.size(), " tokens after ", length(),
                                                   ": must be at most ", capacity(), " together"));
  }
  const int64_t vocab = model_.config().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, ": ", tokens[i], ": must be 0 .. ", vocab - 1, ", the model's vocabulary"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> Generator::Append(absl::Span<const int32_t> tokens) {
  TESSERA_RETURN_IF_ERROR(Check(tokens));
  // The last token goes alone, so that only its logits are computed.
  while (many_ && static_cast<int64_t>(tokens.size()) > kPieceTokens) {
    TESSERA_RETURN_IF_ERROR(Run(tokens.first(kPieceTokens), /*with_logits=*/false, *many_));
    tokens.remove_prefix(kPieceTokens);
  }
  for (; tokens.size() > 1; tokens.remove_prefix(1)) {
    TESSERA_RETURN_IF_ERROR(Run(tokens.first(1), /*with_logits=*/false, *one_));
  }
  TESSERA_RETURN_IF_ERROR(Run(tokens, /*with_logits=*/true, *one_));
  TESSERA_RETURN_IF_ERROR(CopyOutFp32(one_->head.logits, absl::MakeSpan(logits_), stream_));
  return absl::MakeConstSpan(logits_);
}

absl::Status Generator::Run(absl::Span<const int32_t> tokens, bool with_logits,
                            TransformerActivations& activations) {
  const Tensor& ids = activations.ids;
  TESSERA_RETURN_IF_ERROR(stream_.device().CopyIn(tokens.data(), ids.size_bytes(), ids, stream_));
  TESSERA_RETURN_IF_ERROR(model_.Decode(activations, with_logits, cache_, stream_));
  return stream_.Synchronize();  // before tokens go
}

}  // namespace tessera
