// From local gradients to updated weights: reduce over the zero group, norm, clip, AdamW.
#ifndef TESSERA_WORKER_ZERO_ZERO_OPTIMIZER_H_
#define TESSERA_WORKER_ZERO_ZERO_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/zero/zero_store.h"

namespace tessera {

struct ZeroOptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1;             // infinity: no clipping
  bool clip_before_reduce = false;  // by each rank's norm instead of the global one
};

// Owns the moments and, where the store's parameters are not fp32, the fp32 master they are copies
// of. Used by one thread; all ranks of the zero group call Step together. store,
// group and device outlive it.
class ZeroOptimizer {
 public:
  // Moments of all units, 0, as is the master until Write. RESOURCE_EXHAUSTED from the arena;
  // nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(const ZeroOptimizerOptions& options,
                                                               ZeroStore& store,
                                                               Communicator& zero_group,
                                                               Device& device, Stream& stream);

  struct StepInput {
    int64_t step = 1;  // from 1
    double learning_rate = 0;
    int64_t local_valid_targets = 0;   // of this rank's samples
    int64_t global_valid_targets = 0;  // the divisor already in the gradients; >= 1
    double loss_scale = 1;             // a factor already in the gradients
  };
  // Consumes the store's gradients and updates its weights. Returns the norm of the reduced
  // gradient, without the loss scale (with clip_before_reduce, of the clipped contributions' sum);
  // where it is not finite, on every rank of the group alike, nothing is updated. Errors of the
  // communicator pass through.
  //
  // Orders of summation: a shard's squares unit by unit in fp64 over SquaredNorm's fp32; shards in
  // rank order in fp32. Each is of the owner's shard alone, so that stages that hold no more than
  // the shard compute the same bits.
  absl::StatusOr<double> Step(const StepInput& input, Stream& stream);

  // Elements of a parameter from `begin` on, in fp32: the master's, or the store's where there is
  // no master. REQUIRES: in range.
  absl::Status Read(ParameterId id, int64_t begin, absl::Span<float> values, Stream& stream) const;
  // Sets master and store.
  absl::Status Write(ParameterId id, int64_t begin, absl::Span<const float> values, Stream& stream);
  // Bytes held per parameter element: two moments, and the master where there is one.
  int64_t bytes_per_element() const { return (has_master() ? 3 : 2) * 4; }

 private:
  struct UnitState {
    DeviceBuffer buffer;
    Tensor exp_avg, exp_avg_sq;  // flat, as the unit
    Tensor master;               // flat; the store's parameters where those are fp32
  };

  ZeroOptimizer(const ZeroOptimizerOptions& options, ZeroStore& store, Communicator& zero_group,
                Device& device)
      : options_(options), store_(store), zero_group_(zero_group), device_(device) {}
  int num_units() const { return static_cast<int>(store_.units().size()); }
  bool has_master() const { return store_.options().parameter_dtype != DType::kFloat32; }
  absl::Status AddUnit(int unit, Stream& stream);
  Tensor MasterOf(ParameterId id, int64_t begin, int64_t count) const;
  absl::Status ClipLocal(const StepInput& input, Stream& stream);
  absl::Status Update(const StepInput& input, double gradient_scale, Stream& stream);
  // Sum of squares of tensor_of(unit) over all units.
  template <typename TensorOf>
  absl::StatusOr<double> SquareSum(const TensorOf& tensor_of, Stream& stream);

  const ZeroOptimizerOptions options_;
  ZeroStore& store_;
  Communicator& zero_group_;
  Device& device_;
  std::vector<UnitState> states_;
  DeviceBuffer norm_buffer_;  // one fp32 per unit, and one for their sum
  std::vector<float> norms_;  // host copy
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_ZERO_OPTIMIZER_H_
