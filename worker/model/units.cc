#include "worker/model/units.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

ParameterSpec Matrix(std::string name, Shape shape, double standard_deviation) {
  return {std::move(name),   shape, Initializer::kNormal, standard_deviation, true,
          WholeSlice(shape), shape};
}

ParameterSpec Vector(std::string name, int64_t size, Initializer initializer) {
  const Shape shape{size};
  return {std::move(name), shape, initializer, 0, false, WholeSlice(shape), shape};
}

}  // namespace

std::vector<UnitSpec> Gpt2Units(const ModelConfig& config) {
  const int64_t c = config.hidden_size, f = config.intermediate_size;
  const double range = config.initializer_range;
  const double residual_range = range / std::sqrt(2.0 * static_cast<double>(config.layers));
  std::vector<UnitSpec> units;
  units.push_back({"embedding",
                   {Matrix("wte.weight", {config.vocab_size, c}, range),
                    Matrix("wpe.weight", {config.context_length, c}, range)}});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = absl::StrCat("h.", i, ".");
    units.push_back({absl::StrCat("layer.", i),
                     {Vector(prefix + "ln_1.weight", c, Initializer::kOnes),
                      Vector(prefix + "ln_1.bias", c, Initializer::kZeros),
                      Matrix(prefix + "attn.c_attn.weight", {c, 3 * c}, range),
                      Vector(prefix + "attn.c_attn.bias", 3 * c, Initializer::kZeros),
                      Matrix(prefix + "attn.c_proj.weight", {c, c}, residual_range),
                      Vector(prefix + "attn.c_proj.bias", c, Initializer::kZeros),
                      Vector(prefix + "ln_2.weight", c, Initializer::kOnes),
                      Vector(prefix + "ln_2.bias", c, Initializer::kZeros),
                      Matrix(prefix + "mlp.c_fc.weight", {c, f}, range),
                      Vector(prefix + "mlp.c_fc.bias", f, Initializer::kZeros),
                      Matrix(prefix + "mlp.c_proj.weight", {f, c}, residual_range),
                      Vector(prefix + "mlp.c_proj.bias", c, Initializer::kZeros)}});
  }
  units.push_back({"head",
                   {Vector("ln_f.weight", c, Initializer::kOnes),
                    Vector("ln_f.bias", c, Initializer::kZeros)}});
  if (!config.tie_word_embeddings) {
    units.back().parameters.push_back(Matrix("lm_head.weight", {config.vocab_size, c}, range));
  }
  return units;
}

std::vector<UnitSpec> LlamaUnits(const ModelConfig& config) {
  const int64_t c = config.hidden_size, f = config.intermediate_size;
  const int64_t q = config.heads * config.head_size();
  const int64_t kv = config.num_kv_heads() * config.head_size();
  const double range = config.initializer_range;
  std::vector<UnitSpec> units;
  units.push_back(
      {"embedding", {Matrix("model.embed_tokens.weight", {config.vocab_size, c}, range)}});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    UnitSpec layer{absl::StrCat("layer.", i),
                   {Vector(prefix + "input_layernorm.weight", c, Initializer::kOnes),
                    Matrix(prefix + "self_attn.q_proj.weight", {q, c}, range),
                    Matrix(prefix + "self_attn.k_proj.weight", {kv, c}, range),
                    Matrix(prefix + "self_attn.v_proj.weight", {kv, c}, range),
                    Matrix(prefix + "self_attn.o_proj.weight", {c, q}, range),
                    Vector(prefix + "post_attention_layernorm.weight", c, Initializer::kOnes),
                    Matrix(prefix + "mlp.gate_proj.weight", {f, c}, range),
                    Matrix(prefix + "mlp.up_proj.weight", {f, c}, range),
                    Matrix(prefix + "mlp.down_proj.weight", {c, f}, range)}};
    if (config.attention_bias) {
      for (const auto& [name, size] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
        layer.parameters.push_back(Vector(absl::StrCat(prefix, "self_attn.", name, "_proj.bias"),
                                          size, Initializer::kZeros));
      }
    }
    units.push_back(std::move(layer));
  }
  units.push_back({"head", {Vector("model.norm.weight", c, Initializer::kOnes)}});
  if (!config.tie_word_embeddings) {
    units.back().parameters.push_back(Matrix("lm_head.weight", {config.vocab_size, c}, range));
  }
  return units;
}

std::vector<UnitSpec> Units(const ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::kGpt2:
      return Gpt2Units(config);
    case ModelFamily::kLlama:
      return LlamaUnits(config);
  }
  return {};
}

}  // namespace tessera
