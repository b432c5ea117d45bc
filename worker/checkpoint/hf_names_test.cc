#include "worker/checkpoint/hf_names.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace tessera {
namespace {

using Shapes = std::map<std::string, std::vector<uint64_t>>;

ModelConfig Gpt2() {
  ModelConfig config;
  config.vocab_size = 11;
  config.context_length = 5;
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.hidden_size = 6;
  config.intermediate_size = 24;
  return config;
}

ModelConfig Llama() {
  ModelConfig config = Gpt2();
  config.family = ModelFamily::kLlama;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 2;
  config.intermediate_size = 10;
  config.tie_word_embeddings = false;
  return config;
}

ModelConfig Qwen2() {
  ModelConfig config = Llama();
  config.attention_bias = true;
  config.tie_word_embeddings = true;
  return config;
}

Shapes Stored(const ModelConfig& config) {
  Shapes shapes;
  for (const ParameterSpec& p : ParametersOf(config)) {
    shapes[HfTensorName(config.family, p.name)] = ShapeDims(p.shape);
  }
  return shapes;
}

// Names and shapes of transformers' modeling_gpt2.py, modeling_llama.py and modeling_qwen2.py.
TEST(HfNames, NamesOfTransformers) {
  EXPECT_EQ(Stored(Gpt2()).at("transformer.h.1.attn.c_attn.weight"),
            (std::vector<uint64_t>{6, 18}));
  EXPECT_EQ(Stored(Gpt2()).at("transformer.wpe.weight"), (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(Stored(Gpt2()).size(), 2 + 2 * 12 + 2u);
  ModelConfig untied = Gpt2();
  untied.tie_word_embeddings = false;
  EXPECT_EQ(Stored(untied).at("lm_head.weight"), (std::vector<uint64_t>{11, 6}));

  const Shapes llama = Stored(Llama());
  const Shapes expected = {
      {"model.embed_tokens.weight", {11, 6}},
      {"model.norm.weight", {6}},
      {"lm_head.weight", {11, 6}},
  };
  for (const auto& [name, shape] : expected) EXPECT_EQ(llama.at(name), shape) << name;
  const Shapes layer = {
      {"input_layernorm.weight", {6}},     {"post_attention_layernorm.weight", {6}},
      {"self_attn.q_proj.weight", {8, 6}}, {"self_attn.k_proj.weight", {4, 6}},
      {"self_attn.v_proj.weight", {4, 6}}, {"self_attn.o_proj.weight", {6, 8}},
      {"mlp.gate_proj.weight", {10, 6}},   {"mlp.up_proj.weight", {10, 6}},
      {"mlp.down_proj.weight", {6, 10}},
  };
  for (const auto& [name, shape] : layer) {
    EXPECT_EQ(llama.at("model.layers.1." + name), shape) << name;
  }
  EXPECT_EQ(llama.size(), expected.size() + 2 * layer.size());

  const Shapes qwen2 = Stored(Qwen2());
  EXPECT_EQ(qwen2.at("model.layers.0.self_attn.q_proj.bias"), (std::vector<uint64_t>{8}));
  EXPECT_EQ(qwen2.at("model.layers.0.self_attn.v_proj.bias"), (std::vector<uint64_t>{4}));
  EXPECT_FALSE(qwen2.contains("model.layers.0.self_attn.o_proj.bias"));
  EXPECT_FALSE(qwen2.contains("lm_head.weight"));
}

TEST(HfNames, BindsEveryParameterToItsTensor) {
  for (const ModelConfig& config : {Gpt2(), Llama(), Qwen2()}) {
    const auto binding = BindHfTensors(config, Stored(config));
    ASSERT_TRUE(binding.ok()) << binding.status();
    EXPECT_EQ(binding->tensor_of.size(), ParametersOf(config).size());
    for (const auto& [parameter, tensor] : binding->tensor_of) {
      EXPECT_EQ(tensor, HfTensorName(config.family, parameter));
    }
    EXPECT_EQ(binding->tied_head, "");
  }
}

TEST(HfNames, Gpt2WithoutPrefixAndWithBuffers) {
  Shapes shapes;
  for (const auto& [name, shape] : Stored(Gpt2())) shapes[name.substr(12)] = shape;
  shapes["h.0.attn.bias"] = {1, 1, 5, 5};
  shapes["transformer.h.1.attn.masked_bias"] = {};
  shapes["lm_head.weight"] = {11, 6};
  const auto binding = BindHfTensors(Gpt2(), shapes);
  ASSERT_TRUE(binding.ok()) << binding.status();
  EXPECT_EQ(binding->tensor_of.at("h.0.ln_1.bias"), "h.0.ln_1.bias");
  EXPECT_EQ(binding->tied_head, "lm_head.weight");
  EXPECT_EQ(binding->tensor_of.size(), ParametersOf(Gpt2()).size());
}

TEST(HfNames, RefusesWithTheTensor) {
  const struct {
    const char* name;
    ModelConfig config;
    std::function<void(Shapes&)> change;
    const char* tensor;
    const char* said;
  } kCases[] = {
      {"missing", Gpt2(), [](Shapes& s) { s.erase("transformer.h.1.mlp.c_fc.bias"); },
       "'transformer.h.1.mlp.c_fc.bias'", "missing"},
      {"surplus", Gpt2(),
       [](Shapes& s) {
         s["score.weight"] = {2, 6};
       },
       "'score.weight'", "no parameter"},
      {"layer_too_many", Gpt2(), [](Shapes& s) { s["transformer.h.2.ln_1.weight"] = {6}; },
       "'transformer.h.2.ln_1.weight'", "no parameter"},
      {"buffer_of_no_layer", Gpt2(), [](Shapes& s) { s["h.2.attn.bias"] = {1}; }, "'h.2.attn.bias'",
       "no parameter"},
      {"buffer_leading_zero", Gpt2(), [](Shapes& s) { s["h.01.attn.bias"] = {1}; },
       "'h.01.attn.bias'", "no parameter"},
      {"both_names", Gpt2(),
       [](Shapes& s) {
         s["wte.weight"] = {11, 6};
       },
       "'wte.weight'", "is there as 'transformer.wte.weight' too"},
      {"transposed", Gpt2(),
       [](Shapes& s) {
         s["transformer.h.0.attn.c_attn.weight"] = {18, 6};
       },
       "'transformer.h.0.attn.c_attn.weight'", "(18, 6), but the config gives (6, 18)"},
      {"other_rank", Gpt2(),
       [](Shapes& s) {
         s["transformer.ln_f.bias"] = {1, 6};
       },
       "'transformer.ln_f.bias'", "(1, 6)"},
      {"prefixed_head", Gpt2(),
       [](Shapes& s) {
         s["transformer.lm_head.weight"] = {11, 6};
       },
       "'transformer.lm_head.weight'", "no parameter"},
      {"head_of_other_shape", Gpt2(),
       [](Shapes& s) {
         s["lm_head.weight"] = {12, 6};
       },
       "'lm_head.weight'", "(12, 6)"},
      {"untied_without_head", Llama(), [](Shapes& s) { s.erase("lm_head.weight"); },
       "'lm_head.weight'", "missing"},
      {"llama_with_biases", Llama(),
       [](Shapes& s) { s["model.layers.0.self_attn.q_proj.bias"] = {8}; },
       "'model.layers.0.self_attn.q_proj.bias'", "no parameter"},
      {"qwen2_without_bias", Qwen2(),
       [](Shapes& s) { s.erase("model.layers.1.self_attn.k_proj.bias"); },
       "'model.layers.1.self_attn.k_proj.bias'", "missing"},
      {"llama_prefixed", Llama(), [](Shapes& s) { s["transformer.model.norm.weight"] = {6}; },
       "'transformer.model.norm.weight'", "no parameter"},
  };
  for (const auto& c : kCases) {
    Shapes shapes = Stored(c.config);
    c.change(shapes);
    const auto binding = BindHfTensors(c.config, shapes);
    EXPECT_EQ(binding.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    const std::string message(binding.status().message());
    EXPECT_NE(message.find(c.tensor), std::string::npos) << c.name << ": " << message;
    EXPECT_NE(message.find(c.said), std::string::npos) << c.name << ": " << message;
  }
  Shapes old = Stored(Llama());
  old["model.layers.1.self_attn.rotary_emb.inv_freq"] = {1};
  EXPECT_TRUE(BindHfTensors(Llama(), old).ok());
}

TEST(LlamaUnits, OrderOfTheEnums) {
  ModelConfig config = Qwen2();
  config.tie_word_embeddings = false;
  const std::vector<UnitSpec> units = Units(config);
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[0].parameters[kLlamaTokenEmbedding].name, "model.embed_tokens.weight");
  const std::pair<LlamaLayerParameter, const char*> kLayer[] = {
      {kLlamaInputNorm, "input_layernorm.weight"},
      {kLlamaQuery, "self_attn.q_proj.weight"},
      {kLlamaKey, "self_attn.k_proj.weight"},
      {kLlamaValue, "self_attn.v_proj.weight"},
      {kLlamaOutput, "self_attn.o_proj.weight"},
      {kLlamaPostAttentionNorm, "post_attention_layernorm.weight"},
      {kLlamaGate, "mlp.gate_proj.weight"},
      {kLlamaUp, "mlp.up_proj.weight"},
      {kLlamaDown, "mlp.down_proj.weight"},
      {kLlamaQueryBias, "self_attn.q_proj.bias"},
      {kLlamaKeyBias, "self_attn.k_proj.bias"},
      {kLlamaValueBias, "self_attn.v_proj.bias"},
  };
  ASSERT_EQ(units[2].name, "layer.1");
  ASSERT_EQ(units[2].parameters.size(), std::size(kLayer));
  for (const auto& [place, name] : kLayer) {
    const ParameterSpec& p = units[2].parameters[place];
    EXPECT_EQ(p.name, std::string("model.layers.1.") + name);
    EXPECT_EQ(p.decays, p.shape.num_dims() == 2) << p.name;
    EXPECT_EQ(p.standard_deviation, p.shape.num_dims() == 2 ? config.initializer_range : 0);
  }
  EXPECT_EQ(units[3].parameters[kLlamaFinalNorm].name, "model.norm.weight");
  EXPECT_EQ(units[3].parameters[kLlamaHeadWeight].name, "lm_head.weight");
  ModelConfig gpt2 = Gpt2();
  gpt2.tie_word_embeddings = false;
  EXPECT_EQ(Units(gpt2).back().parameters[kGpt2HeadWeight].name, "lm_head.weight");
}

}  // namespace
}  // namespace tessera
