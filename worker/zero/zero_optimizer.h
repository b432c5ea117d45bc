// From local gradients to updated weights: reduce over the zero group, norm, clip, AdamW.
#ifndef TESSERA_WORKER_ZERO_ZERO_OPTIMIZER_H_
#define TESSERA_WORKER_ZERO_ZERO_OPTIMIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/adamw.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/offload/unit_tiers.h"
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

struct ZeroGroups {
  Communicator* zero = nullptr;
  // The groups over which the model is split (pp, tp): the norm is summed over them. Groups of one
  // are left out.
  std::vector<Communicator*> model;
};

// Owns the moments and, where the store's parameters are not fp32, the fp32 master they are copies
// of: of whole units with zero_stage 0, else of the rank's shards. Of what is offloaded the tier
// owns them, and the master of fp32 parameters as well; there the host updates them. Used by one
// thread; all ranks of the groups call ReduceGradients and Step together. store, groups and device
// outlive it.
class ZeroOptimizer {
 public:
  // Moments of all units, 0, as is the master until Write. RESOURCE_EXHAUSTED from the arena or a
  // tier; nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(const ZeroOptimizerOptions& options,
                                                               ZeroStore& store,
                                                               const ZeroGroups& groups,
                                                               Device& device, Stream& stream);

  // Around the update of a step that is not skipped.
  struct Hooks {
    std::function<absl::Status()> before_update;
    std::function<absl::Status(int unit)> after_unit;  // its state and weights are the step's
  };
  void SetHooks(Hooks hooks) { hooks_ = std::move(hooks); }

  struct StepInput {
    int64_t step = 1;  // from 1
    double learning_rate = 0;
    int64_t local_valid_targets = 0;   // of this rank's samples
    int64_t global_valid_targets = 0;  // the divisor already in the gradients; >= 1
    double loss_scale = 1;             // a factor already in the gradients
  };
  // After a step's last backward: what is not reduced yet is, clipped first where that is asked
  // for.
  absl::Status ReduceGradients(const StepInput& input, Stream& stream);
  // Consumes the store's reduced gradients and updates its weights. Returns the norm of the reduced
  // gradient, without the loss scale (with clip_before_reduce, of the clipped contributions' sum);
  // where it is not finite, on every rank of the group alike, nothing is updated. Errors of the
  // communicator pass through. REQUIRES: ReduceGradients.
  //
  // Orders of summation: a shard's squares unit by unit in fp64 over SquaredNorm's fp32; shards in
  // rank order in fp32, then the model's parts in rank order. Every element counts once, however
  // many ranks hold it. Each is of the owner's shard alone, so that stages that hold no more than
  // the shard compute the same bits.
  absl::StatusOr<double> Step(const StepInput& input, Stream& stream);

  // Elements of the local part of a parameter's state from `begin` on: those that this rank holds;
  // others stay as they are. REQUIRES: in range.
  absl::Status Read(StateArray array, ParameterId id, int64_t begin, absl::Span<float> values,
                    Stream& stream) const;
  // Sets master and store, as far as they are here. REQUIRES: as ZeroStore::Write.
  absl::Status Write(ParameterId id, int64_t begin, absl::Span<const float> values, Stream& stream);
  // After the first weights have been written.
  absl::Status FinishWrites() {
    return offload_.tier == nullptr ? absl::OkStatus() : offload_.tier->FinishWrites();
  }
  // Calls visit for the unit's state in pieces of at most piece_elements: views of it, on the
  // device or the host. What it changes is kept; weights follow the master with RestoreParameters.
  absl::Status VisitState(int unit, int64_t piece_elements,
                          absl::FunctionRef<absl::Status(const StatePiece& piece)> visit);
  // The store's parameters of the unit = the master. All ranks of the zero group call it.
  absl::Status RestoreParameters(int unit, Stream& stream);
  // Where in a unit's flat buffer the state is that this rank holds.
  ElementRange held(int unit) const {
    const UnitLayout& layout = store_.layout(unit);
    return is_sharded() ? layout.shard(zero_group_.group_rank()) : layout.whole();
  }
  // Bytes held per parameter element: two moments, and the master where there is one.
  int64_t bytes_per_element(int unit) const {
    return (has_master() || is_offloaded(unit) ? kNumStateArrays : kNumStateArrays - 1) * 4;
  }
  bool is_offloaded(int unit) const { return offload_.has(unit); }

 private:
  struct UnitState {
    DeviceBuffer buffer;
    // Of held(); the master of fp32 is the store's parameters. Null where it is offloaded.
    StatePiece whole;
  };

  ZeroOptimizer(const ZeroOptimizerOptions& options, ZeroStore& store, const ZeroGroups& groups,
                Device& device)
      : options_(options),
        store_(store),
        zero_group_(*groups.zero),
        model_groups_(groups.model),
        device_(device),
        offload_(store.tiers().optimizer) {}
  int num_units() const { return static_cast<int>(store_.units().size()); }
  bool is_sharded() const { return store_.options().zero_stage > 0; }
  bool has_master() const { return store_.options().parameter_dtype != DType::kFloat32; }
  absl::Status AddUnit(int unit, Stream& stream);
  // The elements of a parameter that are here, of those from begin on.
  ElementRange HeldOf(ParameterId id, int64_t begin, int64_t count) const;
  absl::Status ClipLocal(const StepInput& input, Stream& stream);
  absl::Status Update(const StepInput& input, double gradient_scale, Stream& stream);
  absl::Status UpdateUnit(int unit, const AdamWOptions& adamw, Stream& stream);
  // AdamW of one piece, whose tensors and gradients (of held()) are of the stream's device.
  absl::Status UpdatePiece(int unit, const StatePiece& piece, const Tensor& gradients,
                           const Tensor& parameters, AdamWOptions adamw, Stream& stream);
  // Where ranks of the group hold whole parameters and each has updated its shard: all of them.
  absl::Status GatherParameters(int unit, Stream& stream);
  // A unit's parameters of held(), inside of an update.
  Tensor HeldParameters(int unit) const { return store_.parameters().Held(unit, held(unit)); }
  // Some of a unit's gradients: elements `range` of its flat buffer.
  struct Piece {
    ElementRange range;
    Tensor tensor;
  };
  // Starts to sum the squares of what is counted of a piece, one sum a tensor from norms_[first]
  // on. Returns the number of sums.
  absl::StatusOr<int64_t> StartSquareSums(int unit, const Piece& piece, int64_t first,
                                          Stream& stream);
  // Of the first `count` sums.
  absl::StatusOr<double> FinishSquareSums(int64_t count, Stream& stream);
  // Of this rank's shard of the reduced gradients.
  absl::StatusOr<double> ShardSquareSum(Stream& stream);
  // Sum over the ranks of a group.
  absl::StatusOr<float> SumOver(Communicator& group, float value, Stream& stream);

  const ZeroOptimizerOptions options_;
  ZeroStore& store_;
  Communicator& zero_group_;
  const std::vector<Communicator*> model_groups_;
  Device& device_;
  const OffloadedKind<OptimizerTier> offload_;
  std::unique_ptr<Stream> host_stream_;  // of the host's device; null where nothing is offloaded
  Hooks hooks_;
  std::vector<UnitState> states_;
  DeviceBuffer norm_buffer_;  // one fp32 per slot of any unit, and one for their sum
  std::vector<float> norms_;  // host copy
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_ZERO_OPTIMIZER_H_
