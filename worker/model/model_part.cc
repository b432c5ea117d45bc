#include "worker/model/model_part.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "plan/unit_sizes.h"

namespace tessera {
namespace {

// How the parameters of a unit are split over tp: by the position of each in its unit.
class UnitSplitter {
 public:
  UnitSplitter(const ModelConfig& config, const TensorParallelLayout& tp, UnitSpec& unit)
      : config_(config), tp_(tp), unit_(unit) {}

  // Equal on all ranks. With sequence parallelism each rank's gradient is of its own rows alone,
  // unless they are gathered before the parameter is used.
  void Replicate(int parameter, bool sees_own_rows) {
    if (tp_.tp_size == 1) return;
    ParameterSpec& spec = unit_.parameters[parameter];
    spec.tp_gradient =
        sees_own_rows && tp_.shards_rows() ? TpGradient::kPartial : TpGradient::kReplicated;
    spec.is_counted = tp_.tp_rank == 0;
  }
  void Columns(int parameter, std::vector<IndexRange> columns) {
    ParameterSpec& spec = unit_.parameters[parameter];
    Slice(spec, ColumnSlice(spec.shape, std::move(columns)));
  }
  void Rows(int parameter, std::vector<IndexRange> rows, int64_t padding = 0) {
    ParameterSpec& spec = unit_.parameters[parameter];
    // A bias of rows is a vector.
    Slice(spec, spec.shape.num_dims() == 1 ? ColumnSlice(spec.shape, std::move(rows))
                                           : RowSlice(spec.shape, std::move(rows), padding));
  }
  void KvRows(int parameter) {
    const KvHeads kv = KvHeadsOf(tp_, config_.num_kv_heads());
    Rows(parameter, {Channels(kv.heads)});
    if (kv.replicas == 1) return;
    ParameterSpec& spec = unit_.parameters[parameter];
    spec.tp_gradient = TpGradient::kReplicaPartial;
    spec.is_counted = kv.is_first_replica;
  }
  void Vocabulary(int parameter) {
    const VocabularyPart part = VocabularyPartOf(tp_, config_.vocab_size);
    Rows(parameter, {part.ids}, part.padding);
  }
  IndexRange QueryChannels() const { return Channels(tp_.PartOf(config_.heads)); }
  IndexRange MlpChannels() const { return tp_.PartOf(config_.intermediate_size); }

 private:
  IndexRange Channels(const IndexRange& heads) const {
    return {heads.begin * config_.head_size(), heads.count * config_.head_size()};
  }
  static void Slice(ParameterSpec& spec, ParameterSlice slice) {
    spec.local_shape = LocalShape(slice, spec.shape);
    spec.slice = std::move(slice);
  }

  const ModelConfig& config_;
  const TensorParallelLayout tp_;
  UnitSpec& unit_;
};

void SplitGpt2Layer(const ModelConfig& config, UnitSplitter& split) {
  for (const int norm : {kLn1Weight, kLn1Bias, kLn2Weight, kLn2Bias}) split.Replicate(norm, true);
  const IndexRange q = split.QueryChannels(), f = split.MlpChannels();
  const int64_t c = config.hidden_size;
  for (const int packed : {kAttentionWeight, kAttentionBias}) {
    split.Columns(packed, {q, {c + q.begin, q.count}, {2 * c + q.begin, q.count}});
  }
  split.Rows(kAttentionProjectionWeight, {q});
  split.Columns(kMlpWeight, {f});
  split.Columns(kMlpBias, {f});
  split.Rows(kMlpProjectionWeight, {f});
  for (const int bias : {kAttentionProjectionBias, kMlpProjectionBias}) {
    split.Replicate(bias, false);
  }
}

void SplitLlamaLayer(const ModelConfig& config, UnitSplitter& split) {
  for (const int norm : {kLlamaInputNorm, kLlamaPostAttentionNorm}) split.Replicate(norm, true);
  const IndexRange q = split.QueryChannels(), f = split.MlpChannels();
  split.Rows(kLlamaQuery, {q});
  split.KvRows(kLlamaKey);
  split.KvRows(kLlamaValue);
  split.Columns(kLlamaOutput, {q});
  split.Rows(kLlamaGate, {f});
  split.Rows(kLlamaUp, {f});
  split.Columns(kLlamaDown, {f});
  if (!config.attention_bias) return;
  split.Rows(kLlamaQueryBias, {q});
  split.KvRows(kLlamaKeyBias);
  split.KvRows(kLlamaValueBias);
}

// The unit as one tp rank holds it.
UnitSpec SplitUnit(const ModelConfig& config, const TensorParallelLayout& tp, UnitSpec unit,
                   const std::function<void(UnitSplitter&)>& split) {
  if (tp.tp_size == 1) return unit;
  UnitSplitter splitter(config, tp, unit);
  split(splitter);
  return unit;
}

UnitSpec SplitEmbedding(const ModelConfig& config, const ModelPart& part,
                        const std::vector<UnitSpec>& whole) {
  return SplitUnit(config, part.tp, whole.front(), [&](UnitSplitter& split) {
    split.Vocabulary(0);
    if (config.family != ModelFamily::kLlama) split.Replicate(kPositionEmbedding, true);
  });
}

UnitSpec SplitHead(const ModelConfig& config, const ModelPart& part,
                   const std::vector<UnitSpec>& whole) {
  const int norms = config.family == ModelFamily::kLlama ? 1 : 2;
  UnitSpec head = SplitUnit(config, part.tp, whole.back(), [&](UnitSplitter& split) {
    for (int i = 0; i < norms; ++i) split.Replicate(i, true);
    if (!config.tie_word_embeddings) split.Vocabulary(norms);
  });
  if (!part.splits_tied_embedding) return head;
  ParameterSpec copy = SplitEmbedding(config, part, whole).parameters.front();
  copy.is_tied_copy = true;
  copy.is_counted = false;
  head.parameters.insert(head.parameters.begin(), std::move(copy));
  return head;
}

// Elements up to the end of the last parameter, each at its alignment.
int64_t AlignedElements(const UnitSpec& unit) {
  int64_t end = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const int64_t multiple = plan::kUnitAlignmentElements;
    end += (parameter.local_shape.num_elements() + multiple - 1) / multiple * multiple;
  }
  return end;
}

// Where the tied embedding is split, of the embedding's unit and the head's.
int64_t LeastTiedElements(const ModelConfig& config, const ModelPart& part,
                          const std::vector<UnitSpec>& whole) {
  if (!part.splits_tied_embedding) return 0;
  return std::max(AlignedElements(SplitEmbedding(config, part, whole)),
                  AlignedElements(SplitHead(config, part, whole)));
}

UnitSpec LocalEmbedding(const ModelConfig& config, const ModelPart& part,
                        const std::vector<UnitSpec>& whole) {
  UnitSpec embedding = SplitEmbedding(config, part, whole);
  embedding.least_elements = LeastTiedElements(config, part, whole);
  return embedding;
}

UnitSpec LocalHead(const ModelConfig& config, const ModelPart& part,
                   const std::vector<UnitSpec>& whole) {
  UnitSpec head = SplitHead(config, part, whole);
  head.least_elements = LeastTiedElements(config, part, whole);
  return head;
}

}  // namespace

ModelPart ModelPart::Whole(const ModelConfig& config) {
  ModelPart part;
  part.chunks = {{0, config.layers, true, true}};
  return part;
}

ModelConfig LocalConfig(const ModelConfig& config, const TensorParallelLayout& tp) {
  ModelConfig local = config;
  local.head_dim = config.head_size();
  local.heads = tp.PartOf(config.heads).count;
  local.kv_heads = KvHeadsOf(tp, config.num_kv_heads()).heads.count;
  local.intermediate_size = tp.PartOf(config.intermediate_size).count;
  const VocabularyPart vocabulary = VocabularyPartOf(tp, config.vocab_size);
  local.vocab_size = vocabulary.ids.count + vocabulary.padding;
  return local;
}

std::vector<UnitSpec> LocalUnits(const ModelConfig& config, const ModelPart& part) {
  const std::vector<UnitSpec> whole = Units(config);
  const bool is_llama = config.family == ModelFamily::kLlama;
  std::vector<UnitSpec> units;
  for (const ModelChunk& chunk : part.chunks) {
    if (chunk.has_embedding) units.push_back(LocalEmbedding(config, part, whole));
    for (int64_t i = chunk.first_layer; i < chunk.first_layer + chunk.layers; ++i) {
      units.push_back(SplitUnit(config, part.tp, whole[i + 1], [&](UnitSplitter& split) {
        is_llama ? SplitLlamaLayer(config, split) : SplitGpt2Layer(config, split);
      }));
    }
    if (!chunk.has_head) continue;
    units.push_back(LocalHead(config, part, whole));
  }
  return units;
}

ChunkUnits UnitsOfChunk(const ModelPart& part, int chunk) {
  int next = 0;
  ChunkUnits units;
  for (int i = 0; i <= chunk; ++i) {
    const ModelChunk& at = part.chunks[i];
    units = ChunkUnits();
    if (at.has_embedding) units.embedding = next++;
    units.first_layer = next;
    next += static_cast<int>(at.layers);
    if (at.has_head) units.head = next++;
  }
  return units;
}

}  // namespace tessera
