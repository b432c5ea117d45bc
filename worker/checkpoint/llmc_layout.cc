#include "worker/checkpoint/llmc_layout.h"

#include "absl/strings/str_cat.h"

namespace tessera {

int64_t LlmcPaddedVocab(int64_t vocab_size) {
  return (vocab_size + kLlmcVocabMultiple - 1) / kLlmcVocabMultiple * kLlmcVocabMultiple;
}

absl::uint128 LlmcNumElements(const ModelConfig& config) {
  const absl::uint128 c = config.hidden_size;
  // A layer: two norms, qkv, projection, and the MLP's two matrices, with their biases.
  const absl::uint128 layer = 4 * c + 3 * c * c + 3 * c + c * c + c + 8 * c * c + 5 * c;
  return (absl::uint128(LlmcPaddedVocab(config.vocab_size)) + config.context_length) * c +
         config.layers * layer + 2 * c;
}

std::map<std::string, LlmcTensor, std::less<>> LlmcTensors(const ModelConfig& config) {
  const int64_t c = config.hidden_size;
  // Each of these is stored for all layers, then the next.
  const struct {
    const char* name;
    int64_t rows, columns;
    bool transposed;
  } kOfLayers[] = {
      {"ln_1.weight", 1, c, false},           {"ln_1.bias", 1, c, false},
      {"attn.c_attn.weight", 3 * c, c, true}, {"attn.c_attn.bias", 1, 3 * c, false},
      {"attn.c_proj.weight", c, c, true},     {"attn.c_proj.bias", 1, c, false},
      {"ln_2.weight", 1, c, false},           {"ln_2.bias", 1, c, false},
      {"mlp.c_fc.weight", 4 * c, c, true},    {"mlp.c_fc.bias", 1, 4 * c, false},
      {"mlp.c_proj.weight", c, 4 * c, true},  {"mlp.c_proj.bias", 1, c, false},
  };
  std::map<std::string, LlmcTensor, std::less<>> tensors;
  int64_t at = 0;
  auto add = [&](std::string name, int64_t rows, int64_t columns, bool transposed) {
    tensors[std::move(name)] = {at, rows, columns, transposed};
    at += rows * columns;
  };
  add("wte.weight", config.vocab_size, c, false);
  at += (LlmcPaddedVocab(config.vocab_size) - config.vocab_size) * c;
  add("wpe.weight", config.context_length, c, false);
  for (const auto& tensor : kOfLayers) {
    for (int64_t i = 0; i < config.layers; ++i) {
      add(absl::StrCat("h.", i, ".", tensor.name), tensor.rows, tensor.columns, tensor.transposed);
    }
  }
  add("ln_f.weight", 1, c, false);
  add("ln_f.bias", 1, c, false);
  return tensors;
}

}  // namespace tessera
