// GPT-2 and Llama in fp64 with plain loops: what the model is compared with. Shares no code with
// it.
#ifndef TESSERA_WORKER_MODEL_REFERENCE_MODEL_H_
#define TESSERA_WORKER_MODEL_REFERENCE_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/model/model_config.h"

namespace tessera {

// By parameter, in the layouts of units.h.
using ReferenceWeights = std::map<std::string, std::vector<double>>;

// Sum of losses over targets >= 0, times scale. ids and targets: sequences of `time` tokens, one
// after another.
double ReferenceLoss(const ModelConfig& config, const ReferenceWeights& weights, int64_t time,
                     const std::vector<int32_t>& ids, const std::vector<int32_t>& targets,
                     double scale);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_REFERENCE_MODEL_H_
