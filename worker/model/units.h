// The parameters of a model, by unit: what is gathered, sharded and released together.
#ifndef TESSERA_WORKER_MODEL_UNITS_H_
#define TESSERA_WORKER_MODEL_UNITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "worker/model/model_config.h"

namespace tessera {

enum class Initializer : uint8_t { kNormal, kZeros, kOnes };

struct ParameterSpec {
  std::string name;  // Hugging Face's, without "transformer."
  Shape shape;       // whole, not a shard
  Initializer initializer = Initializer::kNormal;
  double standard_deviation = 0;  // of kNormal
  bool decays = false;            // weight decay: matrices and embeddings, not biases and norms
};

struct UnitSpec {
  std::string name;  // "embedding", "layer.0", ..., "head"
  std::vector<ParameterSpec> parameters;
};

// Order of a GPT-2 unit's parameters.
enum Gpt2EmbeddingParameter { kTokenEmbedding, kPositionEmbedding };
enum Gpt2LayerParameter {
  kLn1Weight,
  kLn1Bias,
  kAttentionWeight,  // (C, 3C), columns q | k | v
  kAttentionBias,
  kAttentionProjectionWeight,  // (C, C)
  kAttentionProjectionBias,
  kLn2Weight,
  kLn2Bias,
  kMlpWeight,  // (C, F)
  kMlpBias,
  kMlpProjectionWeight,  // (F, C)
  kMlpProjectionBias,
};
enum Gpt2HeadParameter { kFinalNormWeight, kFinalNormBias };

// Units of GPT-2 in forward order: embedding, layer.0 .. layer.L-1, head; the head's matrix is the
// token embedding. Initial values as Radford et al., "Language Models are Unsupervised Multitask
// Learners", section 2.3: normal(0, initializer_range), residual projections divided by sqrt(2 L).
std::vector<UnitSpec> Gpt2Units(const ModelConfig& config);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_UNITS_H_
