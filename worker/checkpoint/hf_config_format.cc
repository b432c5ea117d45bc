// config.json as transformers expects it.
#include <algorithm>
#include <charconv>
#include <utility>

#include "kernels/status_macros.h"
#include "storage/json.h"
#include "worker/checkpoint/hf_config.h"

namespace tessera {
namespace {

JsonValue::Array EosList(const std::vector<int64_t>& ids) {
  JsonValue::Array list;
  for (int64_t id : ids) list.emplace_back().value = id;
  return list;
}

// The shortest decimal that is this float.
double ShortestDouble(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double shortest = value;
  std::from_chars(text, end, shortest);
  return shortest;
}

void AddGpt2(const ModelConfig& model, JsonValue::Object& out) {
  out.push_back({"architectures", {JsonValue::Array{{std::string("GPT2LMHeadModel")}}}});
  out.push_back({"model_type", {std::string("gpt2")}});
  out.push_back({"activation_function", {std::string("gelu_new")}});
  out.push_back({"n_positions", {model.context_length}});
  out.push_back({"n_embd", {model.hidden_size}});
  out.push_back({"n_layer", {model.layers}});
  out.push_back({"n_head", {model.heads}});
  out.push_back({"n_inner", model.intermediate_size == 4 * model.hidden_size
                                ? JsonValue()
                                : JsonValue{model.intermediate_size}});
  out.push_back({"layer_norm_epsilon", {ShortestDouble(model.norm_epsilon)}});
  // Absent, they would be 0.1; this model has been trained without.
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    out.push_back({dropout, {0.0}});
  }
}

void AddLlama(const ModelConfig& model, JsonValue::Object& out) {
  const bool qwen2 = model.attention_bias;
  out.push_back(
      {"architectures",
       {JsonValue::Array{{std::string(qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM")}}}});
  out.push_back({"model_type", {std::string(qwen2 ? "qwen2" : "llama")}});
  out.push_back({"hidden_act", {std::string("silu")}});
  out.push_back({"max_position_embeddings", {model.context_length}});
  out.push_back({"hidden_size", {model.hidden_size}});
  out.push_back({"intermediate_size", {model.intermediate_size}});
  out.push_back({"num_hidden_layers", {model.layers}});
  out.push_back({"num_attention_heads", {model.heads}});
  out.push_back({"num_key_value_heads", {model.num_kv_heads()}});
  if (model.head_dim != 0) out.push_back({"head_dim", {model.head_dim}});
  out.push_back({"rms_norm_eps", {ShortestDouble(model.norm_epsilon)}});
  out.push_back({"rope_theta", {model.rope_theta}});
  JsonValue scaling;
  if (model.rope_scaling) {
    scaling.value = JsonValue::Object{
        {"rope_type", {std::string("llama3")}},
        {"factor", {model.rope_scaling->factor}},
        {"low_freq_factor", {model.rope_scaling->low_freq_factor}},
        {"high_freq_factor", {model.rope_scaling->high_freq_factor}},
        {"original_max_position_embeddings", {model.rope_scaling->original_context_length}}};
  }
  out.push_back({"rope_scaling", std::move(scaling)});
  if (qwen2) {
    out.push_back({"use_sliding_window", {false}});
  } else {
    out.push_back({"attention_bias", {false}});
    out.push_back({"mlp_bias", {false}});
  }
}

}  // namespace

absl::StatusOr<std::string> FormatHfConfig(const HfConfig& config, absl::string_view torch_dtype) {
  const ModelConfig& model = config.model;
  TESSERA_RETURN_IF_ERROR(CheckModelConfig(model));
  JsonValue::Object out;
  if (model.family == ModelFamily::kGpt2) {
    AddGpt2(model, out);
  } else {
    AddLlama(model, out);
  }
  out.push_back({"vocab_size", {model.vocab_size}});
  out.push_back({"initializer_range", {model.initializer_range}});
  out.push_back({"tie_word_embeddings", {model.tie_word_embeddings}});
  out.push_back({"torch_dtype", {std::string(torch_dtype)}});
  out.push_back(
      {"bos_token_id", config.bos_token_id ? JsonValue{*config.bos_token_id} : JsonValue()});
  JsonValue eos;
  if (config.eos_token_ids.size() == 1) eos.value = config.eos_token_ids[0];
  if (config.eos_token_ids.size() > 1) eos.value = EosList(config.eos_token_ids);
  out.push_back({"eos_token_id", std::move(eos)});
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return FormatJsonPretty({std::move(out)});
}

}  // namespace tessera
