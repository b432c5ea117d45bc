#include "worker/checkpoint/hf_keys.h"

#include <algorithm>
#include <iterator>

namespace tessera {
namespace {

// What any configuration class may have.
constexpr HfFixedOption kCommon[] = {
    {"add_cross_attention", "false"}, {"auto_map", "null {}"},
    {"chunk_size_feed_forward", "0"}, {"cross_attention_hidden_size", "null"},
    {"is_encoder_decoder", "false"},  {"pruned_heads", "{} null"},
    {"quantization_config", "null"},  {"tie_encoder_decoder", "false"},
};

constexpr HfFixedOption kGpt2[] = {
    {"activation_function", "\"gelu_new\" \"gelu_pytorch_tanh\""},  // two names of the tanh form
    {"architectures", "null [\"GPT2LMHeadModel\"] [\"GPT2Model\"]"},
    {"reorder_and_upcast_attn", "false"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"scale_attn_weights", "true"},
};

// Biases beyond q, k, v; rotary embeddings of a part of the head or with interleaved halves;
// attention that does not reach back to the first token.
constexpr HfFixedOption kRotary[] = {
    {"hidden_act", "\"silu\" \"swish\""},
    {"mlp_bias", "false"},
    {"partial_rotary_factor", "1.0 1 null"},
    {"rope_interleaved", "false null"},
    {"use_mrope", "false"},
    {"use_sliding_window", "false"},
};

constexpr HfFixedOption kLlama[] = {
    {"architectures", "null [\"LlamaForCausalLM\"] [\"LlamaModel\"]"},
    {"attention_bias", "false"},  // would be of the output projection too
    {"sliding_window", "null"},
};

constexpr HfFixedOption kQwen2[] = {
    {"architectures", "null [\"Qwen2ForCausalLM\"] [\"Qwen2Model\"]"},
    {"attention_bias", "true"},  // not read by transformers; the biases are always there
};

// Sorted.
constexpr absl::string_view kHarmless[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_from_model_config",
    "_name_or_path",
    "_num_labels",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "bad_words_ids",
    "begin_suppress_tokens",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "max_window_layers",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "predict_special_tokens",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "sliding_window",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

}  // namespace

absl::Span<const HfFixedOption> CommonFixedOptions() { return kCommon; }
absl::Span<const HfFixedOption> RotaryFixedOptions() { return kRotary; }
absl::Span<const HfFixedOption> Gpt2FixedOptions() { return kGpt2; }
absl::Span<const HfFixedOption> LlamaFixedOptions() { return kLlama; }
absl::Span<const HfFixedOption> Qwen2FixedOptions() { return kQwen2; }

bool IsHarmlessHfKey(absl::string_view key) {
  static_assert(std::is_sorted(std::begin(kHarmless), std::end(kHarmless)));
  return std::binary_search(std::begin(kHarmless), std::end(kHarmless), key);
}

}  // namespace tessera
