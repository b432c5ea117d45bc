#include "worker/checkpoint/hf_config.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/status_macros.h"
#include "storage/json.h"
#include "worker/checkpoint/hf_keys.h"

namespace tessera {
namespace {

std::string Shown(const JsonValue& value) {
  const absl::StatusOr<std::string> text = FormatJson(value);
  constexpr size_t kMaxBytes = 100;
  if (!text.ok()) return "?";
  return text->size() <= kMaxBytes ? *text : absl::StrCat(text->substr(0, kMaxBytes), "...");
}

absl::Status Invalid(absl::string_view key, absl::string_view value, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", value, ": ", rule));
}

absl::Status Unsupported(absl::string_view key, absl::string_view value, absl::string_view rule) {
  return absl::UnimplementedError(absl::StrCat(key, ": ", value, ": not supported (", rule, ")"));
}

// Reads the members of an object and remembers which; keeps the first error. Absent keys leave the
// target as it is.
class KeyReader {
 public:
  // prefix: "" or "rope_scaling.", for messages.
  KeyReader(const JsonValue& object, absl::string_view prefix) : object_(object), prefix_(prefix) {}

  const JsonValue* Find(absl::string_view key) {
    known_.insert(std::string(key));
    return object_.Find(key);
  }
  // A null is as good as absent.
  const JsonValue* FindOptional(absl::string_view key) {
    const JsonValue* value = Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  void Int(absl::string_view key, int64_t& target) { ReadInt(key, Find(key), target); }
  bool OptionalInt(absl::string_view key, int64_t& target) {
    const JsonValue* value = FindOptional(key);
    ReadInt(key, value, target);
    return value != nullptr;
  }
  // Integers too. Returns whether the key is there.
  bool Double(absl::string_view key, double& target) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return false;
    if (const auto* number = value->get<double>()) {
      target = *number;
    } else if (const auto* integer = value->get<int64_t>()) {
      target = static_cast<double>(*integer);
    } else {
      Fail(Invalid(Name(key), Shown(*value), "must be a number"));
    }
    return true;
  }
  void Bool(absl::string_view key, bool& target) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return;
    const auto* boolean = value->get<bool>();
    if (boolean == nullptr) return Fail(Invalid(Name(key), Shown(*value), "must be true or false"));
    target = *boolean;
  }
  bool String(absl::string_view key, std::string& target) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return false;
    if (const auto* text = value->get<std::string>()) {
      target = *text;
    } else {
      Fail(Invalid(Name(key), Shown(*value), "must be a string"));
    }
    return true;
  }
  void Fixed(absl::Span<const HfFixedOption> options) {
    for (const HfFixedOption& option : options) {
      const JsonValue* value = Find(option.key);
      if (value == nullptr) continue;
      const std::vector<absl::string_view> allowed = absl::StrSplit(option.values, ' ');
      const absl::StatusOr<std::string> text = FormatJson(*value);
      if (text.ok() && std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) continue;
      Fail(Unsupported(Name(option.key), Shown(*value), absl::StrCat("only ", option.values)));
    }
  }
  // Every other key is refused, but for those that change nothing.
  void RefuseUnknown() {
    const auto* members = object_.get<JsonValue::Object>();
    for (const auto& [key, value] : *members) {
      if (known_.contains(key) || (prefix_.empty() && IsHarmlessHfKey(key))) continue;
      Fail(Unsupported(Name(QuotedForMessage(key)), Shown(value),
                       "an unknown key, which might change what the model computes"));
    }
  }

  void Fail(const absl::Status& status) { status_.Update(status); }
  const absl::Status& status() const { return status_; }
  std::string Name(absl::string_view key) const { return absl::StrCat(prefix_, key); }

 private:
  void ReadInt(absl::string_view key, const JsonValue* value, int64_t& target) {
    if (value == nullptr) return;
    const auto* integer = value->get<int64_t>();
    if (integer == nullptr) return Fail(Invalid(Name(key), Shown(*value), "must be an integer"));
    target = *integer;
  }

  const JsonValue& object_;
  const std::string prefix_;
  std::set<std::string> known_;
  absl::Status status_;
};

// Rotary embeddings, as one of the two objects that hold them says.
struct Rope {
  std::optional<double> theta;
  std::optional<RopeScaling> scaling;
};

absl::StatusOr<Rope> ParseRope(const JsonValue& object, absl::string_view name) {
  if (object.get<JsonValue::Object>() == nullptr) {
    return Invalid(name, Shown(object), "must be an object or null");
  }
  Rope rope;
  KeyReader keys(object, absl::StrCat(name, "."));
  std::string type = "default", legacy_type;
  const bool has_type = keys.String("rope_type", type);
  if (keys.String("type", legacy_type)) {
    if (has_type && legacy_type != type) {
      keys.Fail(Invalid(keys.Name("type"), QuotedForMessage(legacy_type),
                        absl::StrCat("contradicts rope_type ", QuotedForMessage(type))));
    }
    type = legacy_type;
  }
  double theta = 0;
  if (keys.Double("rope_theta", theta)) rope.theta = theta;
  constexpr HfFixedOption kWholeHead[] = {{"partial_rotary_factor", "1.0 1 null"}};
  keys.Fixed(kWholeHead);
  if (type == "llama3") {
    RopeScaling scaling;
    // All are looked at, so that none is left as unknown.
    const bool present[] = {
        keys.Double("factor", scaling.factor),
        keys.Double("low_freq_factor", scaling.low_freq_factor),
        keys.Double("high_freq_factor", scaling.high_freq_factor),
        keys.OptionalInt("original_max_position_embeddings", scaling.original_context_length)};
    if (std::find(std::begin(present), std::end(present), false) != std::end(present)) {
      keys.Fail(Invalid(name, Shown(object),
                        "llama3 needs factor, low_freq_factor, high_freq_factor and "
                        "original_max_position_embeddings"));
    }
    rope.scaling = scaling;
  } else if (type != "default") {
    keys.Fail(Unsupported(keys.Name("rope_type"), QuotedForMessage(type), "only default llama3"));
  }
  keys.RefuseUnknown();
  if (!keys.status().ok()) return keys.status();
  return rope;
}

// rope_theta with rope_scaling, or rope_parameters of newer releases; together if they agree.
absl::Status ReadRope(KeyReader& keys, ModelConfig& model) {
  double theta = 0;
  std::optional<double> found_theta;
  if (keys.Double("rope_theta", theta)) found_theta = theta;
  bool found_object = false;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const JsonValue* object = keys.FindOptional(name);
    if (object == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const Rope rope, ParseRope(*object, name));
    if (rope.theta && found_theta && *rope.theta != *found_theta) {
      return Invalid(absl::StrCat(name, ".rope_theta"), absl::StrCat(*rope.theta),
                     absl::StrCat("contradicts rope_theta ", *found_theta));
    }
    if (rope.theta) found_theta = rope.theta;
    if (found_object && rope.scaling != model.rope_scaling) {
      return Invalid(name, Shown(*object), "contradicts rope_scaling");
    }
    model.rope_scaling = rope.scaling;
    found_object = true;
  }
  if (found_theta) model.rope_theta = *found_theta;
  return absl::OkStatus();
}

void ReadTokenIds(KeyReader& keys, HfConfig& config) {
  auto is_id = [](const JsonValue& value) {
    const auto* id = value.get<int64_t>();
    return id != nullptr && *id >= 0;
  };
  if (const JsonValue* bos = keys.Find("bos_token_id")) {
    config.bos_token_id.reset();
    if (is_id(*bos)) {
      config.bos_token_id = *bos->get<int64_t>();
    } else if (!bos->is_null()) {
      keys.Fail(Invalid("bos_token_id", Shown(*bos), "must be a token id or null"));
    }
  }
  if (const JsonValue* eos = keys.Find("eos_token_id")) {
    config.eos_token_ids.clear();
    const auto* list = eos->get<JsonValue::Array>();
    const JsonValue::Array one = eos->is_null() ? JsonValue::Array() : JsonValue::Array{*eos};
    for (const JsonValue& id : list != nullptr ? *list : one) {
      if (is_id(id)) {
        config.eos_token_ids.push_back(*id.get<int64_t>());
      } else {
        keys.Fail(Invalid("eos_token_id", Shown(*eos), "must be token ids or null"));
      }
    }
  }
}

void ReadCommon(KeyReader& keys, absl::string_view epsilon_key, double epsilon, HfConfig& config) {
  keys.Int("vocab_size", config.model.vocab_size);
  keys.Double(epsilon_key, epsilon);
  config.model.norm_epsilon = static_cast<float>(epsilon);
  keys.Double("initializer_range", config.model.initializer_range);
  keys.Bool("tie_word_embeddings", config.model.tie_word_embeddings);
  ReadTokenIds(keys, config);
}

absl::Status ReadGpt2(KeyReader& keys, HfConfig& config) {
  ModelConfig& model = config.model;
  model.vocab_size = 50257;
  model.context_length = 1024;
  model.hidden_size = 768;
  model.layers = model.heads = 12;
  config.bos_token_id = 50256;
  config.eos_token_ids = {50256};
  ReadCommon(keys, "layer_norm_epsilon", 1e-5, config);
  keys.Int("n_positions", model.context_length);
  keys.Int("n_embd", model.hidden_size);
  keys.Int("n_layer", model.layers);
  keys.Int("n_head", model.heads);
  int64_t old_context = model.context_length;
  if (keys.OptionalInt("n_ctx", old_context) && old_context != model.context_length) {
    keys.Fail(Invalid("n_ctx", absl::StrCat(old_context),
                      absl::StrCat("contradicts n_positions ", model.context_length)));
  }
  model.kv_heads = model.heads;
  const bool has_inner = keys.OptionalInt("n_inner", model.intermediate_size);
  keys.Fixed(CommonFixedOptions());
  keys.Fixed(Gpt2FixedOptions());
  keys.RefuseUnknown();
  TESSERA_RETURN_IF_ERROR(keys.status());
  if (!has_inner) {
    // Checked before it is multiplied.
    if (model.hidden_size > std::numeric_limits<int32_t>::max()) {
      return Invalid("n_embd", absl::StrCat(model.hidden_size), "too large");
    }
    model.intermediate_size = 4 * model.hidden_size;
  }
  return absl::OkStatus();
}

// Layers that all attend to everything before.
void ReadLayerTypes(KeyReader& keys) {
  const JsonValue* types = keys.FindOptional("layer_types");
  if (types == nullptr) return;
  const auto* list = types->get<JsonValue::Array>();
  bool full = list != nullptr;
  for (size_t i = 0; full && i < list->size(); ++i) {
    const auto* type = (*list)[i].get<std::string>();
    full = type != nullptr && *type == "full_attention";
  }
  if (!full) keys.Fail(Unsupported("layer_types", Shown(*types), "only full_attention"));
}

absl::Status ReadLlama(KeyReader& keys, bool qwen2, HfConfig& config) {
  ModelConfig& model = config.model;
  model.family = ModelFamily::kLlama;
  model.attention_bias = qwen2;
  model.tie_word_embeddings = false;
  model.vocab_size = qwen2 ? 151936 : 32000;
  model.context_length = qwen2 ? 32768 : 2048;
  model.hidden_size = 4096;
  model.intermediate_size = qwen2 ? 22016 : 11008;
  model.layers = model.heads = 32;
  if (!qwen2) {
    config.bos_token_id = 1;
    config.eos_token_ids = {2};
  }
  ReadCommon(keys, "rms_norm_eps", 1e-6, config);
  keys.Int("max_position_embeddings", model.context_length);
  keys.Int("hidden_size", model.hidden_size);
  keys.Int("intermediate_size", model.intermediate_size);
  keys.Int("num_hidden_layers", model.layers);
  keys.Int("num_attention_heads", model.heads);
  const JsonValue* kv_heads = keys.Find("num_key_value_heads");
  // Qwen2's class alone has a number as its default.
  model.kv_heads = qwen2 && kv_heads == nullptr ? 32 : model.heads;
  // In ModelConfig 0 stands for the default; here null does.
  for (auto& [key, size] : {std::pair<const char*, int64_t&>{"num_key_value_heads", model.kv_heads},
                            {"head_dim", model.head_dim}}) {
    if (keys.OptionalInt(key, size) && size == 0) {
      keys.Fail(Invalid(key, "0", "must be at least 1"));
    }
  }
  TESSERA_RETURN_IF_ERROR(ReadRope(keys, model));
  ReadLayerTypes(keys);
  keys.Fixed(CommonFixedOptions());
  keys.Fixed(RotaryFixedOptions());
  keys.Fixed(qwen2 ? Qwen2FixedOptions() : LlamaFixedOptions());
  keys.RefuseUnknown();
  return keys.status();
}

}  // namespace

absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text) {
  TESSERA_ASSIGN_OR_RETURN(const JsonValue json, ParseJsonValue(text));
  if (json.get<JsonValue::Object>() == nullptr) {
    return absl::InvalidArgumentError("the document is not an object");
  }
  HfConfig config;
  KeyReader keys(json, "");
  std::string model_type;
  if (!keys.String("model_type", model_type)) {
    return Invalid("model_type", "absent", "must be gpt2, llama or qwen2");
  }
  TESSERA_RETURN_IF_ERROR(keys.status());
  if (model_type == "gpt2") {
    TESSERA_RETURN_IF_ERROR(ReadGpt2(keys, config));
  } else if (model_type == "llama" || model_type == "qwen2") {
    TESSERA_RETURN_IF_ERROR(ReadLlama(keys, model_type == "qwen2", config));
  } else {
    return Unsupported("model_type", QuotedForMessage(model_type), "only gpt2 llama qwen2");
  }
  TESSERA_RETURN_IF_ERROR(CheckModelConfig(config.model));
  return config;
}

}  // namespace tessera
