#include "plan/unit_sizes.h"

#include <algorithm>

namespace tessera::plan {
namespace {

BigSize RoundUp(BigSize value, BigSize multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

BigSize AlignedSum(const std::vector<BigSize>& parameters) {
  BigSize total = 0;
  for (const BigSize& parameter : parameters) total += RoundUp(parameter, kUnitAlignmentElements);
  return total;
}

// The parameters of a tp rank. Legend: C hidden_size, H head_size, N query and G kv heads, F
// intermediate channels, V token ids of the rank.
class TpRank {
 public:
  TpRank(const ModelSizes& model, int tp)
      : model_(model),
        c_(model.hidden_size),
        f_(model.intermediate_size / tp),
        q_(BigSize(model.heads / tp) * model.head_size),
        kv_(BigSize(std::max<int64_t>(model.kv_heads / tp, 1)) * model.head_size),
        v_((BigSize(model.vocab_size) + tp - 1) / tp) {}

  BigSize vocabulary() const { return v_ * c_; }
  std::vector<BigSize> Embedding() const {
    if (model_.is_llama) return {vocabulary()};
    return {vocabulary(), model_.context_length * c_};
  }
  std::vector<BigSize> Layer() const {
    if (!model_.is_llama) {
      return {c_, c_, c_ * 3 * q_, 3 * q_, q_ * c_, c_, c_, c_, c_ * f_, f_, f_ * c_, c_};
    }
    std::vector<BigSize> layer = {c_, q_ * c_, kv_ * c_, kv_ * c_, c_ * q_,
                                  c_, f_ * c_, f_ * c_,  c_ * f_};
    if (model_.attention_bias) layer.insert(layer.end(), {q_, kv_, kv_});
    return layer;
  }
  // Final norm.
  std::vector<BigSize> Norms() const {
    if (model_.is_llama) return {c_};
    return {c_, c_};
  }

 private:
  const ModelSizes& model_;
  const BigSize c_, f_, q_, kv_, v_;
};

}  // namespace

BigSize UnitSize::parameter_elements() const {
  BigSize total = 0;
  for (const BigSize& parameter : parameters) total += parameter;
  return total;
}

BigSize UnitSize::padded_elements(int group_size) const {
  return RoundUp(std::max(AlignedSum(parameters), least_elements),
                 BigSize(kUnitAlignmentElements) * group_size);
}

std::vector<UnitSize> UnitSizesOf(const ModelSizes& model, const MeshSize& mesh,
                                  const std::vector<StageChunk>& chunks) {
  const TpRank rank(model, mesh.tp);
  const bool splits_tied = model.tied_embeddings && mesh.pp > 1;
  std::vector<BigSize> head = rank.Norms();
  if (splits_tied) {
    head.insert(head.begin(), rank.vocabulary());  // its copy
  } else if (!model.tied_embeddings) {
    head.push_back(rank.vocabulary());
  }
  const BigSize least =
      splits_tied ? std::max(AlignedSum(rank.Embedding()), AlignedSum(head)) : BigSize(0);
  std::vector<UnitSize> units;
  for (int chunk = 0; chunk < static_cast<int>(chunks.size()); ++chunk) {
    const StageChunk& at = chunks[chunk];
    if (at.has_embedding) {
      units.push_back({UnitKind::kEmbedding, chunk, 0, rank.Embedding(), least});
    }
    for (int layer = at.layers.first; layer < at.layers.end(); ++layer) {
      units.push_back({UnitKind::kLayer, chunk, layer, rank.Layer(), 0});
    }
    if (at.has_head) units.push_back({UnitKind::kHead, chunk, 0, head, least});
  }
  return units;
}

BigSize NumParameters(const ModelSizes& model) {
  const TpRank rank(model, 1);
  auto sum = [](const std::vector<BigSize>& parameters) {
    BigSize total = 0;
    for (const BigSize& parameter : parameters) total += parameter;
    return total;
  };
  return sum(rank.Embedding()) + model.layers * sum(rank.Layer()) + sum(rank.Norms()) +
         (model.tied_embeddings ? BigSize(0) : rank.vocabulary());
}

}  // namespace tessera::plan
