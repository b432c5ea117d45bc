// Where activations whose rows are sharded over tp are whole for a moment.
//
// Legend: M rows (tokens), C channels.
#ifndef TESSERA_WORKER_MODEL_PARALLEL_SCRATCH_H_
#define TESSERA_WORKER_MODEL_PARALLEL_SCRATCH_H_

#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/tensor_parallel/layout.h"

namespace tessera {

// Contents do not outlive a layer. Null where rows are not sharded: nothing needs it then.
struct ParallelScratch {
  Tensor gathered;  // (M, C), what an all-gather gives
  Tensor partial;   // (M, C), what a reduce-scatter takes

  static ParallelScratch Create(const TensorParallelLayout& layout, int64_t rows, int64_t channels,
                                ActivationBuffers& buffers) {
    if (!layout.shards_rows()) return {};
    return {buffers.New({rows, channels}, "all-gathered rows"),
            buffers.New({rows, channels}, "partial sums")};
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_PARALLEL_SCRATCH_H_
