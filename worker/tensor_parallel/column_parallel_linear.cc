#include "worker/tensor_parallel/column_parallel_linear.h"

#include "kernels/status_macros.h"

namespace tessera {

absl::Status ColumnParallelLinear::Forward(const Tensor& input, absl::Span<const Map> maps,
                                           const Tensor& gathered, const TensorParallel& tp,
                                           Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor whole, tp.Gather(input, gathered, stream));
  for (const Map& map : maps) {
    TESSERA_RETURN_IF_ERROR(Linear::Forward(whole, map.tensors, Tensor(), map.output, stream));
  }
  return absl::OkStatus();
}

absl::Status ColumnParallelLinear::BackwardInput(absl::Span<const Map> maps, const Tensor& partial,
                                                 const Tensor& d_input, const TensorParallel& tp,
                                                 Stream& stream) {
  const Tensor& sum = tp.shards_rows() ? partial : d_input;
  auto mode = Linear::InputGradient::kWrite;
  for (const Map& map : maps) {
    TESSERA_RETURN_IF_ERROR(Linear::BackwardInput(map.tensors, map.output, mode, sum, stream));
    mode = Linear::InputGradient::kAdd;
  }
  return tp.Reduce(sum, d_input, stream);
}

absl::Status ColumnParallelLinear::BackwardWeight(const Tensor& input, absl::Span<const Map> maps,
                                                  const Tensor& gathered, const TensorParallel& tp,
                                                  Stream& stream) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor whole, tp.Gather(input, gathered, stream));
  for (const Map& map : maps) {
    TESSERA_RETURN_IF_ERROR(Linear::BackwardWeight(whole, map.output, map.tensors, stream));
  }
  return absl::OkStatus();
}

}  // namespace tessera
