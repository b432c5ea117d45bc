// The parameters of a model, by unit: what is gathered, sharded and released together.
#ifndef TESSERA_WORKER_MODEL_UNITS_H_
#define TESSERA_WORKER_MODEL_UNITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "worker/model/model_config.h"
#include "worker/tensor_parallel/parameter_slice.h"

namespace tessera {

enum class Initializer : uint8_t { kNormal, kZeros, kOnes };

// What the gradient of a parameter that a tp rank computes is.
enum class TpGradient : uint8_t {
  kOwn,             // of what this rank alone holds
  kReplicated,      // of what all ranks hold, and the same on all
  kPartial,         // of what all ranks hold; the gradient is the sum over them
  kReplicaPartial,  // of kv heads that some ranks hold; the gradient is the sum over those
};

struct ParameterSpec {
  std::string name;  // Hugging Face's; of GPT-2 without "transformer."
  Shape shape;       // whole, not a shard
  Initializer initializer = Initializer::kNormal;
  double standard_deviation = 0;  // of kNormal
  bool decays = false;            // weight decay: matrices and embeddings, not biases and norms
  // What one rank of a mesh holds (model_part.h); in Units all of it.
  ParameterSlice slice;
  Shape local_shape;
  TpGradient tp_gradient = TpGradient::kOwn;
  bool is_counted = true;     // in the global norm: every element on exactly one rank
  bool is_tied_copy = false;  // the head's copy of a token embedding that another rank holds
};

struct UnitSpec {
  std::string name;  // "embedding", "layer.0", ..., "head"
  std::vector<ParameterSpec> parameters;
  // The unit's flat buffer has at least so many elements: where a tied embedding is on two stages,
  // their units are as large, so that the same shards hold the same elements of it.
  int64_t least_elements = 0;
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
enum Gpt2HeadParameter {
  kFinalNormWeight,
  kFinalNormBias,
  kGpt2HeadWeight,  // (V, C), only if embeddings are not tied
};

// Order of a Llama unit's parameters. Matrices are (out, in), y = x W^T, as Hugging Face stores
// them; H = head_size().
enum LlamaEmbeddingParameter { kLlamaTokenEmbedding };
enum LlamaLayerParameter {
  kLlamaInputNorm,          // (C)
  kLlamaQuery,              // (N*H, C)
  kLlamaKey,                // (K*H, C)
  kLlamaValue,              // (K*H, C)
  kLlamaOutput,             // (C, N*H)
  kLlamaPostAttentionNorm,  // (C)
  kLlamaGate,               // (F, C)
  kLlamaUp,                 // (F, C)
  kLlamaDown,               // (C, F)
  // Only with attention_bias.
  kLlamaQueryBias,  // (N*H)
  kLlamaKeyBias,    // (K*H)
  kLlamaValueBias,  // (K*H)
};
enum LlamaHeadParameter {
  kLlamaFinalNorm,
  kLlamaHeadWeight,  // (V, C), only if embeddings are not tied
};

// Units of GPT-2 in forward order: embedding, layer.0 .. layer.L-1, head. Initial values as Radford
// et al., "Language Models are Unsupervised Multitask Learners", section 2.3: normal(0,
// initializer_range), residual projections divided by sqrt(2 L).
std::vector<UnitSpec> Gpt2Units(const ModelConfig& config);

// Units of Llama and Qwen2, in forward order as above. Initial values as transformers'
// _init_weights: normal(0, initializer_range), norms 1, biases 0.
std::vector<UnitSpec> LlamaUnits(const ModelConfig& config);

// Those of the config's family.
std::vector<UnitSpec> Units(const ModelConfig& config);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_UNITS_H_
