#include "worker/trainer/initial_weights_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "proto/rpc/field_error.h"
#include "worker/data/data_root.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

constexpr char kField[] = "spec.initial_weights";

const char* FamilyName(ModelFamily family) {
  return family == ModelFamily::kLlama ? "llama" : "gpt2";
}

std::string Describe(const std::optional<RopeScaling>& scaling) {
  if (!scaling) return "none";
  return absl::StrCat("factor ", scaling->factor, ", low_freq_factor ", scaling->low_freq_factor,
                      ", high_freq_factor ", scaling->high_freq_factor,
                      ", original_context_length ", scaling->original_context_length);
}

// The first field in which the job's model is not that of the weights. What only initialises is
// not compared.
class ModelComparison {
 public:
  explicit ModelComparison(const std::string& path) : path_(path) {}

  ModelComparison& Same(absl::string_view field, const absl::AlphaNum& job,
                        const absl::AlphaNum& weights) {
    if (status_.ok() && job.Piece() != weights.Piece()) {
      status_ = InvalidField(
          absl::StrCat("spec.model.", field), job.Piece(),
          absl::StrCat("must be ", weights.Piece(), ", as ", kField, " (", path_, ") has it"));
    }
    return *this;
  }
  const absl::Status& status() const { return status_; }

 private:
  const std::string& path_;
  absl::Status status_;
};

absl::Status CheckSameModel(const std::string& path, const ModelConfig& job,
                            const ModelConfig& weights) {
  ModelComparison comparison(path);
  comparison.Same("family", FamilyName(job.family), FamilyName(weights.family))
      .Same("vocab_size", job.vocab_size, weights.vocab_size)
      .Same("context_length", job.context_length, weights.context_length)
      .Same("layers", job.layers, weights.layers)
      .Same("heads", job.heads, weights.heads)
      .Same("kv_heads", job.num_kv_heads(), weights.num_kv_heads())
      .Same("hidden_size", job.hidden_size, weights.hidden_size)
      .Same("head_size", job.head_size(), weights.head_size())
      .Same("intermediate_size", job.intermediate_size, weights.intermediate_size)
      .Same("norm_epsilon", job.norm_epsilon, weights.norm_epsilon)
      .Same("tie_word_embeddings", job.tie_word_embeddings ? "true" : "false",
            weights.tie_word_embeddings ? "true" : "false");
  if (job.family == ModelFamily::kGpt2) return comparison.status();
  return comparison
      .Same("attention_bias", job.attention_bias ? "true" : "false",
            weights.attention_bias ? "true" : "false")
      .Same("rope_theta", job.rope_theta, weights.rope_theta)
      .Same("rope_scaling", Describe(job.rope_scaling), Describe(weights.rope_scaling))
      .status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightReader>> OpenInitialWeights(const v1::TrainingJobSpec& spec,
                                                                 const std::string& data_root) {
  const std::string& path = spec.initial_weights();
  if (path.empty()) return std::unique_ptr<WeightReader>();
  TESSERA_ASSIGN_OR_RETURN(const std::string resolved, ResolveInsideRoot(data_root, path, kField));
  absl::StatusOr<std::unique_ptr<WeightReader>> weights = OpenWeights(resolved);
  if (!weights.ok()) {
    return FieldError(weights.status().code(), kField, path, weights.status().message());
  }
  TESSERA_RETURN_IF_ERROR(
      CheckSameModel(path, MakeModelConfig(spec.model()), (*weights)->config().model));
  return weights;
}

}  // namespace tessera
