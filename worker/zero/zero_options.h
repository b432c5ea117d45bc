// What ZeRO shards and when it communicates (Rajbhandari et al., arXiv 1910.02054).
#ifndef TESSERA_WORKER_ZERO_ZERO_OPTIONS_H_
#define TESSERA_WORKER_ZERO_ZERO_OPTIONS_H_

#include <cstdint>

#include "kernels/dtype.h"
#include "plan/step_traffic.h"

namespace tessera {

struct ZeroOptions {
  // 0: nothing is sharded over the zero group; 1: optimizer state; 2: and gradients; 3: and
  // parameters. In a group of one there is nothing to shard.
  int zero_stage = 0;
  DType parameter_dtype = DType::kFloat32;  // fp32, bf16 or fp16
  DType gradient_dtype = DType::kFloat32;   // parameter_dtype or fp32
  bool has_gradients = true;                // false: for evaluating and generating only
  // Of a step: so often each unit's gradients become ready.
  int64_t micro_batches = 1;
  plan::GradientReduction reduction = plan::GradientReduction::kOnce;
  // Gradients stay whole until they are asked for reduced. Only with kOnce.
  bool defers_reduction = false;
  // zero_stage 3: units gathered ahead of the one in use, and the size up to which units stay whole
  // (parameters on this rank, without padding).
  int prefetch_units = 1;
  int64_t resident_parameters = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_ZERO_OPTIONS_H_
