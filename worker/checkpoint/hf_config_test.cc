// config.json of published models, as they were published, and what is refused.
#include "worker/checkpoint/hf_config.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tessera {
namespace {

// openai-community/gpt2.
constexpr char kGpt2[] = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
  "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257
})";

// HuggingFaceTB/SmolLM2-135M.
constexpr char kSmolLm2[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
  "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
  "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
  "use_cache": true, "vocab_size": 49152
})";

// meta-llama/Llama-3.2-1B.
constexpr char kLlama32[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256
})";

// Qwen/Qwen2.5-0.5B.
constexpr char kQwen2[] = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
  "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
  "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
  "use_sliding_window": false, "vocab_size": 151936
})";

ModelConfig MakeModel(ModelFamily family, int64_t vocab, int64_t context, int64_t layers,
                      int64_t heads, int64_t kv_heads, int64_t hidden, int64_t intermediate) {
  ModelConfig model;
  model.family = family;
  model.vocab_size = vocab;
  model.context_length = context;
  model.layers = layers;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.hidden_size = hidden;
  model.intermediate_size = intermediate;
  return model;
}

HfConfig Gpt2() {
  return {MakeModel(ModelFamily::kGpt2, 50257, 1024, 12, 12, 12, 768, 3072), 50256, {50256}};
}
HfConfig SmolLm2() {
  HfConfig config = {MakeModel(ModelFamily::kLlama, 49152, 8192, 30, 9, 3, 576, 1536), 0, {0}};
  config.model.initializer_range = 0.041666666666666664;
  config.model.rope_theta = 100000;
  return config;
}
HfConfig Llama32() {
  HfConfig config = {MakeModel(ModelFamily::kLlama, 128256, 131072, 16, 32, 8, 2048, 8192),
                     128000,
                     {128001, 128008, 128009}};
  config.model.head_dim = 64;
  config.model.rope_theta = 500000;
  config.model.rope_scaling = RopeScaling{32, 1, 4, 8192};
  return config;
}
HfConfig Qwen2() {
  HfConfig config = {
      MakeModel(ModelFamily::kLlama, 151936, 32768, 24, 14, 2, 896, 4864), 151643, {151643}};
  config.model.norm_epsilon = 1e-6f;
  config.model.attention_bias = true;
  config.model.rope_theta = 1e6;
  return config;
}

struct Published {
  const char* name;
  const char* text;
  HfConfig config;
};
const Published kPublished[] = {{"gpt2", kGpt2, Gpt2()},
                                {"smollm2", kSmolLm2, SmolLm2()},
                                {"llama32", kLlama32, Llama32()},
                                {"qwen2", kQwen2, Qwen2()}};

TEST(HfConfig, ReadsPublishedConfigs) {
  for (const Published& p : kPublished) {
    const auto config = ParseHfConfig(p.text);
    ASSERT_TRUE(config.ok()) << p.name << ": " << config.status();
    EXPECT_EQ(*config, p.config) << p.name;
  }
}

TEST(HfConfig, ReadsWhatItWrites) {
  for (const Published& p : kPublished) {
    for (int variant = 0; variant < 5; ++variant) {
      HfConfig config = p.config;
      if (variant == 1) config.model.tie_word_embeddings = false;
      if (variant == 2) config.model.intermediate_size = 100;
      if (variant == 3) config.model.norm_epsilon = 3.3e-6f;
      if (variant == 4) {
        config.bos_token_id.reset();
        config.eos_token_ids.clear();
      }
      const auto text = FormatHfConfig(config, "float32");
      ASSERT_TRUE(text.ok()) << p.name << ": " << text.status();
      const auto read = ParseHfConfig(*text);
      ASSERT_TRUE(read.ok()) << p.name << ": " << read.status() << *text;
      EXPECT_EQ(*read, config) << p.name << " " << variant << ": " << *text;
    }
  }
}

TEST(HfConfig, WritesWhatTransformersExpects) {
  const auto text = FormatHfConfig(Llama32(), "bfloat16");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "attention_bias": false,
  "bos_token_id": 128000,
  "eos_token_id": [
    128001,
    128008,
    128009
  ],
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "initializer_range": 0.02,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 32,
  "num_hidden_layers": 16,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "vocab_size": 128256
}
)");
  const auto qwen2 = FormatHfConfig(Qwen2(), "float32");
  ASSERT_TRUE(qwen2.ok());
  EXPECT_NE(qwen2->find("\"Qwen2ForCausalLM\""), std::string::npos) << *qwen2;
  EXPECT_NE(qwen2->find("\"model_type\": \"qwen2\""), std::string::npos) << *qwen2;
  ModelConfig broken = Llama32().model;
  broken.kv_heads = 5;
  EXPECT_EQ(FormatHfConfig({broken, {}, {}}, "float32").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Of GPT2Config, LlamaConfig and Qwen2Config.
TEST(HfConfig, HasTheDefaultsOfTransformers) {
  EXPECT_EQ(*ParseHfConfig("{\"model_type\":\"gpt2\"}"), Gpt2());
  HfConfig llama = {MakeModel(ModelFamily::kLlama, 32000, 2048, 32, 32, 32, 4096, 11008), 1, {2}};
  llama.model.norm_epsilon = 1e-6f;
  llama.model.tie_word_embeddings = false;
  EXPECT_EQ(*ParseHfConfig("{\"model_type\":\"llama\"}"), llama);
  HfConfig qwen2 = {MakeModel(ModelFamily::kLlama, 151936, 32768, 32, 32, 32, 4096, 22016), {}, {}};
  qwen2.model.norm_epsilon = 1e-6f;
  qwen2.model.tie_word_embeddings = false;
  qwen2.model.attention_bias = true;
  EXPECT_EQ(*ParseHfConfig("{\"model_type\":\"qwen2\"}"), qwen2);
  // null: as many as heads, hidden_size / heads, 4 n_embd.
  const auto nulls = ParseHfConfig(
      "{\"model_type\":\"llama\",\"num_attention_heads\":8,\"num_key_value_heads\":null,"
      "\"head_dim\":null}");
  EXPECT_EQ(nulls->model.kv_heads, 8);
  EXPECT_EQ(nulls->model.head_size(), 512);
  const auto inner = ParseHfConfig("{\"model_type\":\"gpt2\",\"n_inner\":null,\"n_embd\":120}");
  EXPECT_EQ(inner->model.intermediate_size, 480);
}

// Text of `base` with a member added, or its value replaced.
std::string With(const char* base, const std::string& key, const std::string& value) {
  std::string text = base;
  const std::string quoted = absl::StrCat("\"", key, "\":");
  const size_t at = text.find(quoted);
  if (at != std::string::npos) {
    const size_t begin = at + quoted.size();
    size_t end = begin;
    for (int depth = 0; depth > 0 || (text[end] != ',' && text[end] != '\n'); ++end) {
      if (text[end] == '{' || text[end] == '[') ++depth;
      if (text[end] == '}' || text[end] == ']') --depth;
    }
    return text.replace(begin, end - begin, " " + value);
  }
  return absl::StrReplaceAll(text, {{"\n}", absl::StrCat(",\n", quoted, value, "\n}")}});
}

struct Refusal {
  const char* base;
  const char* key;
  const char* value;
  absl::StatusCode code;
  const char* said = "";
};
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

const Refusal kRefusals[] = {
    // Other mathematics.
    {kGpt2, "activation_function", "\"gelu\"", kUnsupported},
    {kGpt2, "activation_function", "\"relu\"", kUnsupported},
    {kGpt2, "scale_attn_weights", "false", kUnsupported},
    {kGpt2, "scale_attn_by_inverse_layer_idx", "true", kUnsupported},
    {kGpt2, "reorder_and_upcast_attn", "true", kUnsupported},
    {kGpt2, "add_cross_attention", "true", kUnsupported},
    {kGpt2, "is_encoder_decoder", "true", kUnsupported},
    {kGpt2, "pruned_heads", "{\"0\":[1]}", kUnsupported},
    {kGpt2, "architectures", "[\"GPT2ForSequenceClassification\"]", kUnsupported},
    {kGpt2, "quantization_config", "{\"quant_method\":\"gptq\"}", kUnsupported},
    {kGpt2, "model_type", "\"gpt_neo\"", kUnsupported},
    {kGpt2, "rope_theta", "10000", kUnsupported, "unknown key"},
    {kLlama32, "hidden_act", "\"gelu\"", kUnsupported},
    {kLlama32, "attention_bias", "true", kUnsupported},
    {kLlama32, "mlp_bias", "true", kUnsupported},
    {kLlama32, "partial_rotary_factor", "0.5", kUnsupported},
    {kLlama32, "rope_interleaved", "true", kUnsupported},
    {kLlama32, "sliding_window", "4096", kUnsupported},
    {kLlama32, "auto_map", "{\"AutoModel\":\"m.M\"}", kUnsupported},
    {kLlama32, "quantization_config", "{}", kUnsupported},
    {kLlama32, "logits_scaling", "8.0", kUnsupported, "unknown key"},
    {kLlama32, "layer_types", "[\"full_attention\",\"sliding_attention\"]", kUnsupported},
    {kLlama32, "rope_scaling", "{\"type\":\"linear\",\"factor\":2.0}", kUnsupported, "linear"},
    {kLlama32, "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2.0}", kUnsupported, "yarn"},
    {kLlama32, "rope_scaling", "{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}",
     kUnsupported, "partial_rotary_factor"},
    {kLlama32, "rope_scaling", "{\"rope_type\":\"default\",\"attention_factor\":2.0}", kUnsupported,
     "attention_factor"},
    {kLlama32, "rope_parameters", "{\"full_attention\":{\"rope_type\":\"default\"}}", kUnsupported,
     "full_attention"},
    {kQwen2, "use_sliding_window", "true", kUnsupported},
    {kQwen2, "use_mrope", "true", kUnsupported},
    {kQwen2, "attention_bias", "false", kUnsupported},
    {kQwen2, "architectures", "[\"LlamaForCausalLM\"]", kUnsupported},
    // Values of the wrong kind, or that do not fit together.
    {kGpt2, "n_embd", "\"768\"", kInvalid, "must be an integer"},
    {kGpt2, "n_embd", "768.0", kInvalid, "must be an integer"},
    {kGpt2, "n_embd", "null", kInvalid, "must be an integer"},
    {kGpt2, "n_embd", "770", kInvalid, "hidden_size"},
    {kGpt2, "n_embd", "9223372036854775807", kInvalid},
    {kGpt2, "n_layer", "0", kInvalid, "layers"},
    {kGpt2, "n_layer", "16385", kInvalid, "layers"},
    {kGpt2, "n_head", "-1", kInvalid, "heads"},
    {kGpt2, "vocab_size", "1073741825", kInvalid},
    {kGpt2, "n_ctx", "512", kInvalid, "n_positions"},
    {kGpt2, "layer_norm_epsilon", "0", kInvalid, "norm_epsilon"},
    {kGpt2, "layer_norm_epsilon", "1e-60", kInvalid, "norm_epsilon"},
    {kGpt2, "layer_norm_epsilon", "\"1e-5\"", kInvalid, "must be a number"},
    {kGpt2, "initializer_range", "-0.1", kInvalid},
    {kGpt2, "tie_word_embeddings", "1", kInvalid, "true or false"},
    {kGpt2, "bos_token_id", "-1", kInvalid},
    {kGpt2, "eos_token_id", "[1,\"2\"]", kInvalid},
    {kGpt2, "model_type", "2", kInvalid, "must be a string"},
    {kLlama32, "num_key_value_heads", "5", kInvalid, "kv_heads"},
    {kLlama32, "num_key_value_heads", "0", kInvalid, "num_key_value_heads"},
    {kLlama32, "head_dim", "0", kInvalid, "head_dim: 0"},
    {kLlama32, "head_dim", "63", kInvalid, "even"},
    {kLlama32, "head_dim", "1073741824", kInvalid},
    {kLlama32, "rope_theta", "-1.0", kInvalid},
    {kLlama32, "rope_theta", "\"10000\"", kInvalid},
    {kLlama32, "rope_scaling", "1", kInvalid, "must be an object"},
    {kLlama32, "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8.0}", kInvalid,
     "llama3 needs"},
    {kLlama32, "rope_scaling", "{\"rope_type\":\"llama3\",\"type\":\"default\"}", kInvalid,
     "contradicts"},
    {kLlama32, "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":0.5,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192}",
     kInvalid, "at least 1"},
    {kLlama32, "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":4.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192}",
     kInvalid, "above low_freq_factor"},
    {kLlama32, "rope_parameters", "{\"rope_type\":\"default\"}", kInvalid, "contradicts"},
    {kSmolLm2, "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":5.0}", kInvalid,
     "contradicts rope_theta"},
};

TEST(HfConfig, RefusesByName) {
  for (const Refusal& c : kRefusals) {
    const std::string text = With(c.base, c.key, c.value);
    const auto config = ParseHfConfig(text);
    EXPECT_EQ(config.status().code(), c.code) << c.key << " " << c.value << ": " << config.status();
    const std::string message(config.status().message());
    // CheckModelConfig says the name of its own field, which the case gives.
    EXPECT_NE(message.find(c.code == kUnsupported ? c.key : c.said), std::string::npos) << message;
    EXPECT_NE(message.find(c.said), std::string::npos) << c.key << ": " << message;
  }
}

TEST(HfConfig, RefusesOtherDocuments) {
  for (const char* text :
       {"", "[]", "1", "{}", "{\"model_type\":\"gpt2\",\"model_type\":\"gpt2\"}"}) {
    EXPECT_EQ(ParseHfConfig(text).status().code(), kInvalid) << text;
  }
}

TEST(HfConfig, AcceptsBothSpellingsOfRope) {
  const RopeScaling scaling{32, 1, 4, 8192};
  const std::string members =
      "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":8192";
  const struct {
    const char* name;
    std::string rope;
    double theta;
    std::optional<RopeScaling> scaling;
  } kCases[] = {
      {"legacy_type", "\"rope_scaling\":{\"type\":\"llama3\"," + members + "}", 10000, scaling},
      {"both_types",
       "\"rope_scaling\":{\"type\":\"llama3\",\"rope_type\":\"llama3\"," + members + "}", 10000,
       scaling},
      {"parameters",
       "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5," + members + "}", 500000,
       scaling},
      {"parameters_default", "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}", 7,
       std::nullopt},
      {"agreeing",
       "\"rope_theta\":7,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7.0},"
       "\"rope_scaling\":{\"rope_type\":\"default\"}",
       7, std::nullopt},
      {"nulls", "\"rope_scaling\":null,\"rope_parameters\":null", 10000, std::nullopt},
  };
  for (const auto& c : kCases) {
    const auto config = ParseHfConfig("{\"model_type\":\"llama\"," + c.rope + "}");
    ASSERT_TRUE(config.ok()) << c.name << ": " << config.status();
    EXPECT_EQ(config->model.rope_theta, c.theta) << c.name;
    EXPECT_EQ(config->model.rope_scaling, c.scaling) << c.name;
  }
}

}  // namespace
}  // namespace tessera
