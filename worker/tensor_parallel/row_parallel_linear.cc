#include "worker/tensor_parallel/row_parallel_linear.h"

#include "kernels/elementwise.h"
#include "kernels/status_macros.h"

namespace tessera {

absl::Status RowParallelLinear::Forward(const Tensor& input, const LinearTensors& parameters,
                                        const Tensor& residual, const Tensor& partial,
                                        const Tensor& output, const TensorParallel& tp,
                                        Stream& stream) {
  if (!tp.is_split()) return Linear::Forward(input, parameters, residual, output, stream);
  LinearTensors own = parameters;
  if (!tp.adds_bias()) own.bias = Tensor();
  const Tensor& sum = tp.shards_rows() ? partial : output;
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, own, Tensor(), sum, stream));
  TESSERA_RETURN_IF_ERROR(tp.Reduce(sum, output, stream));
  return Add(output, residual, output, stream);
}

}  // namespace tessera
