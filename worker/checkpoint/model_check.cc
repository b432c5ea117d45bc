#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/hf_config.h"

namespace tessera {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 30;
constexpr int64_t kMaxLayers = 16384;

// Keeps the first failure.
class FieldChecks {
 public:
  FieldChecks& Size(absl::string_view field, int64_t value, int64_t max = kMaxSize) {
    return That(value >= 1 && value <= max, field, value, absl::StrCat("must be 1 .. ", max));
  }
  FieldChecks& That(bool holds, absl::string_view field, const absl::AlphaNum& value,
                    absl::string_view rule) {
    if (status_.ok() && !holds) {
      status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", value, ": ", rule));
    }
    return *this;
  }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

void CheckRope(const ModelConfig& config, FieldChecks& checks) {
  checks.That(config.head_size() % 2 == 0, "head_dim", config.head_size(),
              "must be even for rotary embeddings");
  checks.That(IsPositive(config.rope_theta), "rope_theta", config.rope_theta, "must be positive");
  if (!config.rope_scaling) return;
  const RopeScaling& scaling = *config.rope_scaling;
  checks
      .That(std::isfinite(scaling.factor) && scaling.factor >= 1, "rope_scaling.factor",
            scaling.factor, "must be at least 1")
      .That(IsPositive(scaling.low_freq_factor), "rope_scaling.low_freq_factor",
            scaling.low_freq_factor, "must be positive")
      .That(std::isfinite(scaling.high_freq_factor) &&
                scaling.high_freq_factor > scaling.low_freq_factor,
            "rope_scaling.high_freq_factor", scaling.high_freq_factor,
            "must be above low_freq_factor")
      .Size("rope_scaling.original_context_length", scaling.original_context_length);
}

}  // namespace

absl::Status CheckModelConfig(const ModelConfig& config) {
  FieldChecks checks;
  checks.Size("vocab_size", config.vocab_size)
      .Size("context_length", config.context_length)
      .Size("layers", config.layers, kMaxLayers)
      .Size("heads", config.heads)
      .Size("hidden_size", config.hidden_size)
      .Size("intermediate_size", config.intermediate_size)
      .That(IsPositive(config.norm_epsilon), "norm_epsilon", config.norm_epsilon,
            "must be positive")
      .That(std::isfinite(config.initializer_range) && config.initializer_range >= 0,
            "initializer_range", config.initializer_range, "must not be negative");
  if (!checks.ok()) return checks.status();
  checks.Size("kv_heads", config.num_kv_heads());
  if (!checks.ok()) return checks.status();
  checks.That(config.heads % config.num_kv_heads() == 0, "kv_heads", config.num_kv_heads(),
              absl::StrCat("must divide heads (", config.heads, ")"));
  if (config.head_dim == 0) {
    checks.That(config.hidden_size % config.heads == 0, "heads", config.heads,
                absl::StrCat("must divide hidden_size (", config.hidden_size, ")"));
  } else {
    checks.Size("head_dim", config.head_dim, kMaxSize / config.heads);
  }
  if (!checks.ok()) return checks.status();
  if (config.family == ModelFamily::kLlama) {
    CheckRope(config, checks);
  } else {
    checks
        .That(config.head_dim == 0, "head_dim", config.head_dim, "GPT-2 has no head_dim of its own")
        .That(config.num_kv_heads() == config.heads, "kv_heads", config.kv_heads,
              "GPT-2 has as many as heads")
        .That(!config.attention_bias && !config.rope_scaling, "attention_bias or rope_scaling",
              "set", "not in GPT-2");
  }
  return checks.status();
}

}  // namespace tessera
