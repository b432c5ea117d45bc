// Tensors of a Hugging Face checkpoint, held against the parameters that a config asks for.
#ifndef TESSERA_WORKER_CHECKPOINT_HF_NAMES_H_
#define TESSERA_WORKER_CHECKPOINT_HF_NAMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/model/units.h"

namespace tessera {

// Units' parameters in forward order. REQUIRES: CheckModelConfig holds.
std::vector<ParameterSpec> ParametersOf(const ModelConfig& config);

// The name under which transformers stores a parameter: GPT-2's with "transformer." before all but
// lm_head.weight, Llama's as they are.
std::string HfTensorName(ModelFamily family, absl::string_view parameter);

struct HfBinding {
  std::map<std::string, std::string> tensor_of;  // parameter to stored tensor, all parameters
  // With tied embeddings: a stored lm_head.weight, whose contents must be the embedding's. Empty
  // if there is none.
  std::string tied_head;
};

// shapes: of the stored tensors, by name. GPT-2's names may lack "transformer."; what older
// releases stored and newer ones compute (masks of attention, rotary frequencies) is left out.
// INVALID_ARGUMENT names the tensor: missing, surplus, there under both names, or of a shape that
// the config does not give.
absl::StatusOr<HfBinding> BindHfTensors(const ModelConfig& config,
                                        const std::map<std::string, std::vector<uint64_t>>& shapes);

// Of a parameter, as file formats have it.
std::vector<uint64_t> ShapeDims(const Shape& shape);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_HF_NAMES_H_
