// Initial parameter values from a counter-based generator: element i of a parameter is a function
// of (seed, name, i) alone, so that no layout changes a model's start.
#ifndef TESSERA_WORKER_MODEL_INITIAL_WEIGHTS_H_
#define TESSERA_WORKER_MODEL_INITIAL_WEIGHTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/model/units.h"

namespace tessera {

// values[j] = initial value of element begin + j. Normal values: Box-Muller in fp64 over Philox of
// counter (index / 4, FNV-1a hash of the name), key seed; rounded once to fp32.
void FillInitialValues(const ParameterSpec& parameter, uint64_t seed, int64_t begin,
                       absl::Span<float> values);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_INITIAL_WEIGHTS_H_
