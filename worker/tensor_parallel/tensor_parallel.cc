#include "worker/tensor_parallel/tensor_parallel.h"

#include "kernels/status_macros.h"

namespace tessera {

absl::StatusOr<Tensor> TensorParallel::Gather(const Tensor& input, const Tensor& gathered,
                                              Stream& stream) const {
  if (!shards_rows()) return input;
  TESSERA_RETURN_IF_ERROR(group_->AllGather(input, gathered, stream));
  return gathered;
}

absl::Status TensorParallel::Reduce(const Tensor& partial, const Tensor& output,
                                    Stream& stream) const {
  if (shards_rows()) return group_->ReduceScatter(partial, output, ReduceOp::kSum, stream);
  if (is_split()) TESSERA_RETURN_IF_ERROR(group_->AllReduce(partial, ReduceOp::kSum, stream));
  if (partial.address() == output.address()) return absl::OkStatus();
  return stream.device().Copy(partial, output, stream);
}

}  // namespace tessera
