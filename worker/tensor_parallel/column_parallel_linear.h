// Affine maps whose output columns are split over tp: y_r = x W_r (+ b_r).
//
// Legend: M rows (tokens), R of them per rank with sequence parallelism and else M; C inputs, O
// outputs of this rank.
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_COLUMN_PARALLEL_LINEAR_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_COLUMN_PARALLEL_LINEAR_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/tensor_parallel/linear.h"
#include "worker/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Stateless; used by one thread. Several maps of one input communicate once.
class ColumnParallelLinear {
 public:
  struct Map {
    LinearTensors tensors;  // weights forward and for the input's gradient; gradients for weights'
    Tensor output;          // (M, O), or its gradient
  };
  // Each map's output = from input (R, C). Identity, or all-gather into gathered (M, C), which is
  // null where rows are not sharded.
  static absl::Status Forward(const Tensor& input, absl::Span<const Map> maps,
                              const Tensor& gathered, const TensorParallel& tp, Stream& stream);
  // d_input (R, C) = from each map's output gradient. All-reduce, or reduce-scatter out of partial
  // (M, C), which is null where rows are not sharded.
  static absl::Status BackwardInput(absl::Span<const Map> maps, const Tensor& partial,
                                    const Tensor& d_input, const TensorParallel& tp,
                                    Stream& stream);
  // Each map's weight and bias gradient +=. Gathers as Forward.
  static absl::Status BackwardWeight(const Tensor& input, absl::Span<const Map> maps,
                                     const Tensor& gathered, const TensorParallel& tp,
                                     Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_COLUMN_PARALLEL_LINEAR_H_
