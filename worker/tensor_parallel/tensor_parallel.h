// Where a layer's activations enter and leave the part that is split over tp: the conjugate
// operators f and g of Megatron-LM (arXiv 1909.08053, figure 3) and, with sequence parallelism,
// g-bar (arXiv 2205.05198, figure 5).
//
// Legend: M rows (tokens), C channels; R = M rows of the norm regions, or M / tp_size of them
// (this rank's block) with sequence parallelism.
//
//   entering (column-parallel): identity forward, all-reduce backward;
//                               sequence-parallel: all-gather forward, reduce-scatter backward
//   leaving (row-parallel):     all-reduce forward, identity backward;
//                               sequence-parallel: reduce-scatter forward, all-gather backward
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_TENSOR_PARALLEL_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_TENSOR_PARALLEL_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/comm/communicator.h"
#include "worker/tensor_parallel/layout.h"

namespace tessera {

// Used by one thread; the group outlives it. Of one rank (no group) every operation is the identity
// and moves nothing.
class TensorParallel {
 public:
  TensorParallel() = default;
  // REQUIRES: layout is this member's of the group.
  TensorParallel(const TensorParallelLayout& layout, Communicator& group)
      : layout_(layout), group_(&group) {}

  const TensorParallelLayout& layout() const { return layout_; }
  bool is_split() const { return layout_.tp_size > 1; }
  bool shards_rows() const { return layout_.shards_rows(); }
  // A bias of a row-parallel map is added by one rank of the group.
  bool adds_bias() const { return layout_.tp_rank == 0; }
  // Rows of the norm regions for M rows. REQUIRES: divides.
  int64_t ShardRows(int64_t rows) const { return shards_rows() ? rows / layout_.tp_size : rows; }

  // The whole of input (R, C): input itself, or `gathered` (M, C), all-gathered. Also what the
  // gradient of a leaving tensor is, backward.
  absl::StatusOr<Tensor> Gather(const Tensor& input, const Tensor& gathered, Stream& stream) const;
  // output (R, C) = this rank's rows of the sum over the group of partial (M, C); partial is
  // scratch after. output may be partial itself where rows are not sharded.
  absl::Status Reduce(const Tensor& partial, const Tensor& output, Stream& stream) const;
  // The whole group's, for what is neither: REQUIRES is_split().
  Communicator& group() const { return *group_; }

 private:
  TensorParallelLayout layout_;
  Communicator* group_ = nullptr;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_TENSOR_PARALLEL_H_
