// An affine map whose input columns are split over tp: y = sum over ranks of x_r W_r (+ b).
//
// Legend: M rows (tokens), R of them per rank with sequence parallelism and else M; I inputs of
// this rank, C outputs.
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_ROW_PARALLEL_LINEAR_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_ROW_PARALLEL_LINEAR_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/tensor_parallel/linear.h"
#include "worker/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Stateless; used by one thread.
class RowParallelLinear {
 public:
  // output (R, C) = residual (R, C) + the map of input (M, I). All-reduce, or reduce-scatter out of
  // partial (M, C), which is null where rows are not sharded. The bias is added once, before the
  // sum; the residual after it. output is not residual.
  static absl::Status Forward(const Tensor& input, const LinearTensors& parameters,
                              const Tensor& residual, const Tensor& partial, const Tensor& output,
                              const TensorParallel& tp, Stream& stream);
  // All rows (M, C) of d_output (R, C): itself, or all-gathered. What the two below take.
  static absl::StatusOr<Tensor> GatherOutputGradient(const Tensor& d_output, const Tensor& gathered,
                                                     const TensorParallel& tp, Stream& stream) {
    return tp.Gather(d_output, gathered, stream);
  }
  // d_input (M, I) = from whole_d_output (M, C).
  static absl::Status BackwardInput(const LinearTensors& parameters, const Tensor& whole_d_output,
                                    const Tensor& d_input, Stream& stream) {
    return Linear::BackwardInput(parameters, whole_d_output, Linear::InputGradient::kWrite, d_input,
                                 stream);
  }
  // gradients.* +=; the bias's is the same on every rank.
  static absl::Status BackwardWeight(const Tensor& input, const Tensor& whole_d_output,
                                     const LinearTensors& gradients, Stream& stream) {
    return Linear::BackwardWeight(input, whole_d_output, gradients, stream);
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_ROW_PARALLEL_LINEAR_H_
