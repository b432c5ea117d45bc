#include "worker/model/generator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

// Tokens of a prompt that go through the model together: enough for products to pay.
constexpr int64_t kPieceTokens = KvCache::kBlockTokens;

int SizeOf(const Communicator* group) { return group == nullptr ? 1 : group->size(); }
int RankIn(const Communicator* group) { return group == nullptr ? 0 : group->group_rank(); }

}  // namespace

Generator::Generator(absl::Span<const Transformer* const> chunks, const Groups& groups,
                     KvCache cache, Stream& stream)
    : chunks_(chunks.begin(), chunks.end()),
      groups_(groups),
      stream_(stream),
      cache_(std::move(cache)) {}

absl::StatusOr<std::unique_ptr<Generator>> Generator::Create(const Transformer& model, DType dtype,
                                                             int64_t capacity, Device& device,
                                                             Stream& stream) {
  const Transformer* const chunks[] = {&model};
  return Create(chunks, {}, dtype, capacity, device, stream);
}

absl::StatusOr<std::unique_ptr<Generator>> Generator::Create(
    absl::Span<const Transformer* const> chunks, const Groups& groups, DType dtype,
    int64_t capacity, Device& device, Stream& stream) {
  const ModelConfig& config = chunks.front()->config();
  if (capacity < 1 || capacity > config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("a sequence of ", capacity,
                                                   " tokens: must be 1 .. ", config.context_length,
                                                   ", the model's context length"));
  }
  const TensorParallelLayout& tp = chunks.front()->tp().layout();
  const ModelConfig local = LocalConfig(config, tp);
  int64_t layers = 0;
  for (const Transformer* chunk : chunks) layers += chunk->chunk().layers;
  TESSERA_ASSIGN_OR_RETURN(
      KvCache cache, KvCache::Create(local, layers, capacity, SizeOf(groups.cp), RankIn(groups.cp),
                                     dtype, device));
  std::unique_ptr<Generator> generator(new Generator(chunks, groups, std::move(cache), stream));
  generator->dtype_ = dtype;
  generator->logits_.resize(local.vocab_size * tp.tp_size);
  TESSERA_ASSIGN_OR_RETURN(Pass one, generator->MakePass(1, dtype, device));
  generator->one_.emplace(std::move(one));
  if (capacity > kPieceTokens) {
    TESSERA_ASSIGN_OR_RETURN(Pass many, generator->MakePass(kPieceTokens, dtype, device));
    generator->many_.emplace(std::move(many));
  }
  if (tp.tp_size > 1 || SizeOf(groups.pp) > 1) {
    TESSERA_ASSIGN_OR_RETURN(
        generator->all_logits_,
        device.Allocate(generator->logits_.size() * DTypeSizeBytes(dtype),
                        MemoryCategory::kCommunication, "logits of all ranks"));
  }
  return generator;
}

absl::StatusOr<Generator::Pass> Generator::MakePass(int64_t time, DType dtype, Device& device) {
  const Transformer& first = *chunks_.front();
  ActivationOptions options;
  options.batch = 1;
  options.time = time;
  options.dtype = dtype;
  options.cached = cache_.rows();
  options.cp_group = groups_.cp;
  const TensorParallelLayout& tp = first.tp().layout();
  TESSERA_ASSIGN_OR_RETURN(
      TransformerScratch scratch,
      TransformerScratch::Create(first.config(), tp, chunks_.back()->chunk().has_head, options,
                                 device, stream_));
  Pass pass{std::move(scratch), {}};
  for (const Transformer* chunk : chunks_) {
    TESSERA_ASSIGN_OR_RETURN(TransformerActivations activations,
                             TransformerActivations::Create(first.config(), tp, chunk->chunk(),
                                                            options, pass.scratch, device));
    pass.chunks.push_back(std::move(activations));
  }
  return pass;
}

absl::Status Generator::Check(absl::Span<const int32_t> tokens) const {
  if (tokens.empty()) return absl::InvalidArgumentError("no tokens: must be at least one");
  const int64_t room = capacity() - length();
  if (static_cast<int64_t>(tokens.size()) > room) {
    return absl::InvalidArgumentError(absl::StrCat(tokens.size(), " tokens after ", length(),
                                                   ": must be at most ", capacity(), " together"));
  }
  const int64_t vocab = chunks_.front()->config().vocab_size;
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
  while (tokens.size() > 1) {
    const bool is_piece = many_ && static_cast<int64_t>(tokens.size()) > kPieceTokens &&
                          cache_.NextTokens(kPieceTokens) == kPieceTokens;
    const int64_t count = is_piece ? kPieceTokens : 1;
    TESSERA_RETURN_IF_ERROR(
        Run(tokens.first(count), /*with_logits=*/false, is_piece ? *many_ : *one_));
    tokens.remove_prefix(count);
  }
  TESSERA_RETURN_IF_ERROR(Run(tokens, /*with_logits=*/true, *one_));
  TESSERA_RETURN_IF_ERROR(ShareLogits(*one_));
  return absl::MakeConstSpan(logits_).first(chunks_.front()->config().vocab_size);
}

absl::Status Generator::Run(absl::Span<const int32_t> tokens, bool with_logits, Pass& pass) {
  const Tensor& ids = pass.chunks.front().ids;
  if (!ids.is_null()) {
    TESSERA_RETURN_IF_ERROR(stream_.device().CopyIn(tokens.data(), ids.size_bytes(), ids, stream_));
  }
  TESSERA_RETURN_IF_ERROR(RunChunks(with_logits, pass));
  cache_.Advance(static_cast<int64_t>(tokens.size()));
  return stream_.Synchronize();  // before tokens go
}

absl::Status Generator::RunChunks(bool with_logits, Pass& pass) {
  const int stages = SizeOf(groups_.pp), stage = RankIn(groups_.pp);
  int64_t layer = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const Transformer& model = *chunks_[i];
    TransformerActivations& activations = pass.chunks[i];
    if (!model.chunk().has_embedding) {
      TESSERA_RETURN_IF_ERROR(
          groups_.pp->Recv(activations.input, (stage + stages - 1) % stages, stream_));
    }
    TESSERA_RETURN_IF_ERROR(model.Decode(activations, pass.scratch, cache_, layer, stream_));
    layer += model.chunk().layers;
    if (model.chunk().has_head) {
      if (with_logits) {
        TESSERA_RETURN_IF_ERROR(
            model.ForwardHead(activations, pass.scratch, /*backward=*/false, stream_));
      }
    } else {
      TESSERA_RETURN_IF_ERROR(
          groups_.pp->Send(activations.output(), (stage + 1) % stages, stream_));
    }
  }
  return absl::OkStatus();
}

absl::Status Generator::ShareLogits(Pass& pass) {
  const Tensor& own = pass.scratch.head.logits;
  if (all_logits_.is_null()) return CopyOutFp32(own, absl::MakeSpan(logits_), stream_);
  const Tensor all = all_logits_.View(dtype_, {static_cast<int64_t>(logits_.size())});
  if (chunks_.back()->chunk().has_head) {
    const TensorParallel& tp = chunks_.back()->tp();
    const Tensor flat = own.Reshape({own.num_elements()});
    TESSERA_RETURN_IF_ERROR(tp.is_split() ? tp.group().AllGather(flat, all, stream_)
                                          : stream_.device().Copy(flat, all, stream_));
  }
  if (SizeOf(groups_.pp) > 1) {
    TESSERA_RETURN_IF_ERROR(groups_.pp->Broadcast(all, groups_.pp->size() - 1, stream_));
  }
  return CopyOutFp32(all, absl::MakeSpan(logits_), stream_);
}

}  // namespace tessera
